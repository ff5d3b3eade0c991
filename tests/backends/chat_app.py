"""A small model behind the OpenAI dialect, as an ASGI application: uvicorn speaks HTTP for it."""

import asyncio
import json

TOKENS = 12
PAUSE_SECONDS = 0.002


def event(value):
    return f"data: {json.dumps(value)}\n\n".encode()


async def app(scope, receive, send):
    if scope["type"] != "http":
        return
    body = b""
    while True:
        message = await receive()
        body += message.get("body", b"")
        if not message.get("more_body"):
            break
    if scope["path"] == "/v1/models":
        return await whole(send, {"object": "list", "data": [{"id": "tiny", "object": "model"}]})
    asked = json.loads(body)
    usage = {"prompt_tokens": 9, "completion_tokens": TOKENS, "total_tokens": 9 + TOKENS}
    if not asked.get("stream"):
        choice = {"index": 0, "message": {"role": "assistant", "content": "so"}, "finish_reason": "stop"}
        return await whole(send, {"id": "c", "choices": [choice], "usage": usage})
    headers = [(b"content-type", b"text/event-stream")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    for number in range(TOKENS):
        choice = {"index": 0, "delta": {"content": f"{number} "}, "finish_reason": None}
        await send({"type": "http.response.body", "body": event({"choices": [choice]}), "more_body": True})
        await asyncio.sleep(PAUSE_SECONDS)
    end = event({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
    if asked.get("stream_options", {}).get("include_usage"):
        end += event({"choices": [], "usage": usage})
    await send({"type": "http.response.body", "body": end + b"data: [DONE]\n\n", "more_body": False})


async def whole(send, value):
    body = json.dumps(value).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})
