"""The official openai package against the gateway: nothing but its base URL is special."""

import asyncio

import openai
import pytest

SAY = [{"role": "user", "content": "Say something about queues."}]
TOOL = {
    "type": "function",
    "function": {
        "name": "look_up",
        "description": "Looks a word up.",
        "parameters": {
            "type": "object",
            "properties": {"word": {"type": "string"}},
            "required": ["word"],
        },
    },
}


@pytest.fixture
def client(gateway):
    with openai.OpenAI(base_url=f"{gateway.url}/v1", api_key=gateway.key, max_retries=0) as client:
        yield client


def test_models_are_listed(client):
    assert [model.id for model in client.models.list()] == ["sim"]


def test_chat(client):
    answer = client.chat.completions.create(model="sim", messages=SAY, max_tokens=20)
    assert answer.choices[0].message.content
    assert answer.choices[0].finish_reason in ("stop", "length")
    assert 0 < answer.usage.completion_tokens <= 20
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens


def test_chat_streamed_is_the_same_text(client):
    whole = client.chat.completions.create(model="sim", messages=SAY, max_tokens=20)
    stream = client.chat.completions.create(model="sim", messages=SAY, max_tokens=20, stream=True)
    chunks = list(stream)
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == whole.choices[0].message.content
    # Usage was not asked for, so there is none to see, although the gateway asked for it.
    assert all(chunk.choices for chunk in chunks)


def test_chat_streamed_with_usage(client):
    stream = client.chat.completions.create(
        model="sim", messages=SAY, max_tokens=20, stream=True, stream_options={"include_usage": True}
    )
    usage = [chunk.usage for chunk in stream if chunk.usage]
    assert len(usage) == 1
    assert 0 < usage[0].completion_tokens <= 20


def test_chat_asynchronously(gateway):
    async def several():
        async with openai.AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key=gateway.key) as client:
            asked = [
                client.chat.completions.create(model="sim", messages=SAY, max_tokens=5)
                for _ in range(20)
            ]
            return await asyncio.gather(*asked)

    answers = asyncio.run(several())
    assert len({answer.choices[0].message.content for answer in answers}) == 1


def test_tool_calls_survive(client):
    answer = client.chat.completions.create(
        model="sim", messages=SAY, tools=[TOOL], tool_choice="required", max_tokens=50
    )
    call = answer.choices[0].message.tool_calls[0]
    assert call.function.name == "look_up"
    stream = client.chat.completions.create(
        model="sim", messages=SAY, tools=[TOOL], tool_choice="required", max_tokens=50, stream=True
    )
    pieces = [
        call.function.arguments or ""
        for chunk in stream
        for choice in chunk.choices
        for call in choice.delta.tool_calls or []
    ]
    assert "".join(pieces) == call.function.arguments


def test_images_survive(client):
    pixel = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
    content = [
        {"type": "text", "text": "What is this?"},
        {"type": "image_url", "image_url": {"url": pixel}},
    ]
    answer = client.chat.completions.create(
        model="sim", messages=[{"role": "user", "content": content}], max_tokens=5
    )
    assert answer.choices[0].message.content


def test_completions(client):
    answer = client.completions.create(model="sim", prompt="Once upon a time", max_tokens=10)
    assert answer.choices[0].text
    stream = client.completions.create(
        model="sim", prompt="Once upon a time", max_tokens=10, stream=True
    )
    assert "".join(chunk.choices[0].text for chunk in stream) == answer.choices[0].text


def test_embeddings(client):
    answer = client.embeddings.create(model="sim", input=["one", "two"])
    assert len(answer.data) == 2
    assert len(answer.data[0].embedding) == len(answer.data[1].embedding) > 0


def test_responses(client):
    answer = client.responses.create(model="sim", input="Say something.", max_output_tokens=400)
    assert answer.output_text
    assert 0 < answer.usage.output_tokens <= 400
    with client.responses.stream(
        model="sim", input="Say something.", max_output_tokens=400
    ) as stream:
        for _ in stream:
            pass
        assert stream.get_final_response().output_text == answer.output_text


def test_errors_are_the_sdks_own(gateway, client):
    with pytest.raises(openai.NotFoundError) as error:
        client.chat.completions.create(model="no-such-model", messages=SAY)
    assert error.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError):
        client.chat.completions.create(model="sim", messages=SAY, max_tokens=-1)
    stranger = openai.OpenAI(base_url=f"{gateway.url}/v1", api_key="fg-nobody", max_retries=0)
    with pytest.raises(openai.AuthenticationError) as error:
        stranger.models.list()
    assert error.value.code == "invalid_api_key"
    assert "fg-nobody" not in str(error.value)
