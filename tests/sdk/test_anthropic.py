"""The official anthropic package against the gateway: nothing but its base URL is special."""

import asyncio

import anthropic
import pytest

SAY = [{"role": "user", "content": "Say something about queues."}]
TOOL = {
    "name": "look_up",
    "description": "Looks a word up.",
    "input_schema": {
        "type": "object",
        "properties": {"word": {"type": "string"}},
        "required": ["word"],
    },
}


@pytest.fixture
def client(gateway):
    with anthropic.Anthropic(
        base_url=gateway.url, api_key=gateway.key, max_retries=0
    ) as client:
        yield client


def text_of(message):
    return "".join(block.text for block in message.content if block.type == "text")


def test_messages(client):
    answer = client.messages.create(model="sim", messages=SAY, max_tokens=20)
    assert text_of(answer)
    assert answer.usage.input_tokens > 0
    assert 0 < answer.usage.output_tokens <= 20


def test_messages_streamed_are_the_same_text(client):
    whole = client.messages.create(model="sim", messages=SAY, max_tokens=20)
    with client.messages.stream(model="sim", messages=SAY, max_tokens=20) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    assert text == text_of(whole) == text_of(final)
    assert final.usage.output_tokens == whole.usage.output_tokens


def test_messages_asynchronously(gateway):
    async def several():
        async with anthropic.AsyncAnthropic(
            base_url=gateway.url, api_key=gateway.key
        ) as client:
            asked = [
                client.messages.create(model="sim", messages=SAY, max_tokens=5) for _ in range(10)
            ]
            return await asyncio.gather(*asked)

    answers = asyncio.run(several())
    assert len({text_of(answer) for answer in answers}) == 1


def test_a_bearer_token_is_a_key_too(gateway):
    with anthropic.Anthropic(base_url=gateway.url, auth_token=gateway.key, api_key=None) as client:
        assert text_of(client.messages.create(model="sim", messages=SAY, max_tokens=5))


def test_tool_use_survives(client):
    answer = client.messages.create(
        model="sim", messages=SAY, max_tokens=50, tools=[TOOL], tool_choice={"type": "any"}
    )
    [use] = [block for block in answer.content if block.type == "tool_use"]
    assert use.name == "look_up"
    with client.messages.stream(
        model="sim", messages=SAY, max_tokens=50, tools=[TOOL], tool_choice={"type": "any"}
    ) as stream:
        final = stream.get_final_message()
    [streamed] = [block for block in final.content if block.type == "tool_use"]
    assert streamed.input == use.input


def test_tokens_are_counted(client):
    assert client.messages.count_tokens(model="sim", messages=SAY).input_tokens > 0


def test_errors_are_the_sdks_own(gateway, client):
    with pytest.raises(anthropic.NotFoundError) as error:
        client.messages.create(model="no-such-model", messages=SAY, max_tokens=5)
    assert error.value.body["error"]["type"] == "not_found_error"
    stranger = anthropic.Anthropic(base_url=gateway.url, api_key="fg-nobody", max_retries=0)
    with pytest.raises(anthropic.AuthenticationError) as error:
        stranger.messages.create(model="sim", messages=SAY, max_tokens=5)
    assert "fg-nobody" not in str(error.value)
