"""Servers that others wrote, under saturation: no stream fails that the server did not fail itself."""

import asyncio

import httpx
import pytest
from conftest import TENANTS, until

STREAMS = 500
AT_ONCE = 32


def chat(text, **more):
    return {"model": "tiny", "max_tokens": 16, "messages": [{"role": "user", "content": text}], **more}


def ask(house, tenant, body):
    headers = {"authorization": f"Bearer {house.keys[tenant]}"}
    return httpx.post(f"{house.url}/v1/chat/completions", json=body, headers=headers, timeout=60)


async def streams(house, count):
    """Asks for so many streams, as many at once as keep all slots taken and others waiting; what went wrong."""
    problems = []
    turns = asyncio.Semaphore(AT_ONCE)

    async def one(client, number):
        headers = {"authorization": f"Bearer {house.keys[TENANTS[number % 2]]}"}
        body = chat(f"say {number}", stream=True)
        async with turns:
            try:
                answer = await client.post("/v1/chat/completions", json=body, headers=headers)
            except httpx.TransportError as error:
                return problems.append(repr(error))
        text = answer.text
        if answer.status_code != 200 or not text.rstrip().endswith("data: [DONE]") or '"error"' in text:
            problems.append(f"{answer.status_code}: {text[-300:]}")

    limits = httpx.Limits(max_connections=AT_ONCE)
    async with httpx.AsyncClient(base_url=house.url, limits=limits, timeout=120) as client:
        await asyncio.gather(*(one(client, number) for number in range(count)))
    return problems


def requests_by_tenant(house):
    return {row["name"]: row["requests"] for row in house.fairgate("usage")["rows"]}


@pytest.mark.parametrize("backend", ["llama", "uvicorn"])
def test_no_stream_fails_under_saturation(backend, request):
    house = request.getfixturevalue(backend)
    before = requests_by_tenant(house)
    assert asyncio.run(streams(house, STREAMS)) == []
    after = requests_by_tenant(house)
    assert {tenant: after[tenant] - before.get(tenant, 0) for tenant in TENANTS} == {
        tenant: STREAMS // 2 for tenant in TENANTS
    }


def test_requests_that_llama_cannot_read_take_nothing_from_others(llama):
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
    poison = chat("", max_tokens=4) | {"messages": [{"role": "user", "content": [image]}]}
    for _ in range(12):
        assert ask(llama, "first", poison).status_code == 500
        assert ask(llama, "second", chat("hello")).status_code == 200
    # Alone, it is asked whether it is well, and it is.
    for _ in range(12):
        assert ask(llama, "first", poison).status_code == 500
    assert ask(llama, "second", chat("hello")).status_code == 200
    assert httpx.get(f"{llama.url}/readyz", timeout=10).status_code == 200


def test_a_client_that_leaves_frees_llamas_slot(llama):
    def busy():
        slots = httpx.get(f"{llama.backend}/slots", timeout=10).json()
        return sum(slot["is_processing"] for slot in slots)

    until(lambda: busy() == 0)
    headers = {"authorization": f"Bearer {llama.keys['first']}"}
    body = chat("talk for ever", stream=True, max_tokens=7000, ignore_eos=True)
    address = f"{llama.url}/v1/chat/completions"
    with httpx.stream("POST", address, json=body, headers=headers, timeout=60) as answer:
        lines = answer.iter_lines()
        while '"content":"' not in next(lines):
            pass
        assert busy() == 1
    until(lambda: busy() == 0, seconds=5)
