"""An engine for the SDKs: chat with tools, streamed or not, and errors on request."""

import asyncio
import contextlib
import json
import threading
from collections.abc import Iterator, Sequence
from typing import Any

from aiohttp import web

from tests.e2e.api_engine import MESSAGE
from tests.ports import free_port

CALL = {"name": "weather", "arguments": '{"city": "Paris"}'}
_CHAT = {"id": "chat-1", "created": 1_700_000_000, "model": "m"}
_USAGE = {"prompt_tokens": 9, "completion_tokens": 4, "total_tokens": 13}

CHAT_ANSWER: dict[str, Any] = {
    **_CHAT,
    "object": "chat.completion",
    "choices": [
        {
            "index": 0,
            "finish_reason": "tool_calls",
            "message": {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": "call_1", "type": "function", "function": CALL}],
            },
        }
    ],
    "usage": _USAGE,
}


def _delta(delta: dict[str, Any], reason: str | None = None) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta, "finish_reason": reason}
    return {**_CHAT, "object": "chat.completion.chunk", "choices": [choice]}


CHAT_CHUNKS: Sequence[dict[str, Any]] = (
    _delta({"role": "assistant", "content": None}),
    _delta({"tool_calls": [{"index": 0, "id": "call_1", "type": "function", "function": {**CALL, "arguments": ""}}]}),
    _delta({"tool_calls": [{"index": 0, "function": {"arguments": '{"city": '}}]}),
    _delta({"tool_calls": [{"index": 0, "function": {"arguments": '"Paris"}'}}]}),
    _delta({}, "tool_calls"),
)

MESSAGE_ANSWER = {
    **MESSAGE,
    "stop_reason": "tool_use",
    "content": [{"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {"city": "Paris"}}],
}
MESSAGE_EVENTS: Sequence[dict[str, Any]] = (
    {"type": "message_start", "message": {**MESSAGE, "content": [], "stop_reason": None}},
    {
        "type": "content_block_start",
        "index": 0,
        "content_block": {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {}},
    },
    {"type": "content_block_delta", "index": 0, "delta": {"type": "input_json_delta", "partial_json": '{"city": '}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "input_json_delta", "partial_json": '"Paris"}'}},
    {"type": "content_block_stop", "index": 0},
    {
        "type": "message_delta",
        "delta": {"stop_reason": "tool_use", "stop_sequence": None},
        "usage": MESSAGE["usage"],
    },
    {"type": "message_stop"},
)


async def _answer(request: web.Request) -> web.StreamResponse:
    body = await request.json()
    asked = str(body.get("user") or (body.get("metadata") or {}).get("user_id") or "")
    anthropics = request.path.startswith("/v1/messages")
    if asked.isdigit():
        return web.json_response(_error(int(asked), anthropics=anthropics), status=int(asked))
    if not body.get("stream"):
        return web.json_response(MESSAGE_ANSWER if anthropics else CHAT_ANSWER)
    response = web.StreamResponse(headers={"content-type": "text/event-stream"})
    await response.prepare(request)
    for event in MESSAGE_EVENTS if anthropics else CHAT_CHUNKS:
        name = f"event: {event['type']}\n" if anthropics else ""
        await response.write(f"{name}data: {json.dumps(event)}\n\n".encode())
    if not anthropics:
        await response.write(b"data: [DONE]\n\n")
    return response


def _error(status: int, *, anthropics: bool) -> dict[str, Any]:
    if anthropics:
        return {"type": "error", "error": {"type": "api_error", "message": f"the engine said {status}"}}
    return {"error": {"message": f"the engine said {status}", "type": "x", "param": None, "code": str(status)}}


@contextlib.contextmanager
def sdk_engine() -> Iterator[int]:
    """Run one in a thread; yield its port."""
    port, started = free_port(), threading.Event()
    loop = asyncio.new_event_loop()
    over = asyncio.Event()

    async def serve() -> None:
        app = web.Application(client_max_size=1 << 26)
        app.router.add_route("*", "/{path:.*}", _answer)
        runner = web.AppRunner(app, shutdown_timeout=1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", port).start()
        started.set()
        await over.wait()
        await runner.cleanup()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    try:
        assert started.wait(10)
        yield port
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join(10)
        loop.close()
