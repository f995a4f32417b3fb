"""An engine that answers Anthropic's and OpenAI's newer APIs as vLLM does, in a thread of the test's own."""

import asyncio
import contextlib
import json
import threading
from collections.abc import Iterator
from typing import Any

from aiohttp import web

from tests.ports import free_port

MESSAGE: dict[str, Any] = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "content": [{"type": "text", "text": "hello there"}],
    "model": "m",
    "stop_reason": "end_turn",
    "stop_sequence": None,
    "usage": {"input_tokens": 9, "cache_creation_input_tokens": 2, "cache_read_input_tokens": 5, "output_tokens": 4},
}
RESPONSE: dict[str, Any] = {
    "id": "resp_1",
    "created_at": 1_700_000_000,
    "object": "response",
    "model": "m",
    "status": "completed",
    "output": [
        {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": "hello there", "annotations": []}],
        }
    ],
    "parallel_tool_calls": True,
    "tool_choice": "auto",
    "tools": [],
    "usage": {
        "input_tokens": 9,
        "input_tokens_details": {"cached_tokens": 5},
        "output_tokens": 4,
        "output_tokens_details": {"reasoning_tokens": 1},
        "total_tokens": 13,
    },
}
USAGE_AT_START = {**MESSAGE["usage"], "output_tokens": 0}

MESSAGE_EVENTS: tuple[dict[str, Any], ...] = (
    {"type": "message_start", "message": {**MESSAGE, "content": [], "stop_reason": None, "usage": USAGE_AT_START}},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    *(
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}}
        for text in ("hello", " there")
    ),
    {"type": "content_block_stop", "index": 0},
    {
        "type": "message_delta",
        "delta": {"stop_reason": "end_turn", "stop_sequence": None},
        "usage": MESSAGE["usage"],
    },
    {"type": "message_stop"},
)
RESPONSE_EVENTS: tuple[dict[str, Any], ...] = (
    {
        "type": "response.created",
        "sequence_number": 0,
        "response": {**RESPONSE, "status": "in_progress", "output": [], "usage": None},
    },
    *(
        {
            "type": "response.output_text.delta",
            "sequence_number": number,
            "item_id": "msg_1",
            "output_index": 0,
            "content_index": 0,
            "delta": text,
            "logprobs": [],
        }
        for number, text in ((1, "hello"), (2, " there"))
    ),
    {"type": "response.completed", "sequence_number": 3, "response": RESPONSE},
)
CUT_RESPONSE_EVENTS = (
    *RESPONSE_EVENTS[:-1],
    {
        "type": "response.incomplete",
        "sequence_number": 3,
        "response": {**RESPONSE, "status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}},
    },
)
"""What is told of an answer that met its limit."""


async def _answer(request: web.Request) -> web.StreamResponse:
    raw = await request.read()
    try:
        body = json.loads(raw)
    except ValueError:
        body = None
    streamed = isinstance(body, dict) and body.get("stream") is True
    match request.path:
        case "/v1/messages":
            return await _events(request, MESSAGE_EVENTS) if streamed else web.json_response(MESSAGE)
        case "/v1/messages/count_tokens":
            return web.json_response({"input_tokens": 9})
        case "/v1/responses":
            events = CUT_RESPONSE_EVENTS if streamed and "max_output_tokens" in body else RESPONSE_EVENTS
            return await _events(request, events) if streamed else web.json_response(RESPONSE)
        case "/v1/audio/transcriptions" | "/v1/audio/translations":
            return web.json_response({"text": f"{len(raw)} bytes of {request.content_type}"})
        case "/v1/audio/speech":
            return web.Response(body=b"\xff\xf3" * 500, content_type="audio/mpeg")
        case "/v1/images/generations" | "/v1/images/edits" | "/v1/images/variations":
            return web.json_response({"created": 1_700_000_000, "data": [{"b64_json": f"{len(raw)}"}]})
    return web.json_response({"path": request.path_qs, "method": request.method, "size": len(raw)})


async def _events(request: web.Request, events: tuple[dict[str, Any], ...]) -> web.StreamResponse:
    response = web.StreamResponse(headers={"content-type": "text/event-stream; charset=utf-8"})
    await response.prepare(request)
    for event in events:
        await response.write(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode())
    return response


@contextlib.contextmanager
def api_engine() -> Iterator[int]:
    """Run one; yield its port."""
    port, started = free_port(), threading.Event()
    loop = asyncio.new_event_loop()

    async def serve() -> None:
        app = web.Application(client_max_size=1 << 26)
        app.router.add_route("*", "/{path:.*}", _answer)
        runner = web.AppRunner(app, shutdown_timeout=1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", port).start()
        started.set()
        await over.wait()
        await runner.cleanup()

    over = asyncio.Event()
    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    try:
        assert started.wait(10)
        yield port
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join(10)
        loop.close()
