"""Answers as engines give them: streams, whole answers, and what each of them cost."""

import json
from typing import Any, Final

from extproc.reported import Tokens


def stream(*events: Any, done: bool = True, end: str = "\n") -> bytes:
    """Return a stream of OpenAI's form."""
    lines = [f"data: {json.dumps(event, ensure_ascii=False)}{end}{end}" for event in events]
    return "".join([*lines, f"data: [DONE]{end}{end}" if done else ""]).encode()


def named(*events: dict[str, Any]) -> bytes:
    """Return a stream whose events bear their type as a name, as Anthropic's and the responses' do."""
    return "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events).encode()


def chunk(content: str | None = None, **more: Any) -> dict[str, Any]:
    """Return a chunk of a chat."""
    delta = {} if content is None else {"content": content}
    return {"object": "chat.completion.chunk", "choices": [{"index": 0, "delta": delta, "finish_reason": None}], **more}


def usage(prompt: int, completion: int, **more: Any) -> dict[str, Any]:
    """Return usage in the form of chat."""
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion, **more}


ROLE: Final = {"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}]}
LAST: Final = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
USAGE: Final = {"object": "chat.completion.chunk", "choices": [], "usage": usage(7, 2)}
USAGE_BYTES: Final = stream(USAGE, done=False)
CHAT: Final = stream(ROLE, chunk("Hé"), chunk("llo"), LAST, USAGE)
CHAT_WITHOUT: Final = stream(ROLE, chunk("Hé"), chunk("llo"), LAST)

STREAMS: Final[dict[str, tuple[bytes, Tokens, int]]] = {
    "chat": (CHAT, Tokens(7, 2, 9), 6),
    "chat in CRLF": (CHAT.replace(b"\n", b"\r\n"), Tokens(7, 2, 9), 6),
    "chat in CR": (CHAT.replace(b"\n", b"\r"), Tokens(7, 2, 9), 6),
    "chat without a space": (CHAT.replace(b"data: ", b"data:"), Tokens(7, 2, 9), 6),
    "chat with a byte order mark": (b"\xef\xbb\xbf" + CHAT, Tokens(7, 2, 9), 6),
    "chat with comments": (b": ping\n\n" + CHAT.replace(b"\n\n", b"\n\n: ping\n"), Tokens(7, 2, 9), 6),
    "chat without an end": (CHAT.removesuffix(b"data: [DONE]\n\n"), Tokens(7, 2, 9), 6),
    "chat without a last empty line": (CHAT.removesuffix(b"\n\ndata: [DONE]\n\n"), Tokens(7, 2, 9), 6),
    "chat in two data lines": (
        CHAT.replace(b'"choices": [], ', b'"choices": [],\ndata: '),
        Tokens(7, 2, 9),
        6,
    ),
    "chat with usage in every chunk": (
        stream(
            ROLE, chunk("a", usage=usage(7, 1)), chunk("b", usage=usage(7, 2)), {"choices": [], "usage": usage(7, 2)}
        ),
        Tokens(7, 2, 9),
        2,
    ),
    "chat with usage in the last chunk": (
        stream(chunk("a"), {"choices": LAST["choices"], "usage": usage(7, 1)}, done=False),
        Tokens(7, 1, 8),
        1,
    ),
    "chat with a zero at the end": (
        stream(chunk("a", usage=usage(7, 12)), {"choices": [], "usage": usage(0, 0)}),
        Tokens(7, 12, 19),
        1,
    ),
    "chat with details": (
        stream(
            chunk("a"),
            {
                "choices": [],
                "usage": usage(
                    9, 5, prompt_tokens_details={"cached_tokens": 4}, completion_tokens_details={"reasoning_tokens": 3}
                ),
            },
        ),
        Tokens(9, 5, 14, 4, 3),
        1,
    ),
    "chat with tools and reasoning": (
        stream(
            {"choices": [{"delta": {"reasoning_content": "hm"}}]},
            {"choices": [{"delta": {"tool_calls": [{"function": {"name": "f", "arguments": "{}"}}]}}]},
        ),
        Tokens(),
        5,
    ),
    "chat with timings": (
        stream(chunk("a"), {**LAST, "timings": {"cache_n": 9, "prompt_n": 1, "predicted_n": 3}}),
        Tokens(10, 3, None, 9),
        1,
    ),
    "completions": (stream({"choices": [{"text": "abc"}]}, {"choices": [], "usage": usage(3, 1)}), Tokens(3, 1, 4), 3),
    "messages": (
        named(
            {
                "type": "message_start",
                "message": {
                    "content": [],
                    "usage": {
                        "input_tokens": 5,
                        "cache_read_input_tokens": 3,
                        "cache_creation_input_tokens": 1,
                        "output_tokens": 1,
                    },
                },
            },
            {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
            {"type": "ping"},
            {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "abcd"}},
            {"type": "content_block_delta", "index": 0, "delta": {"type": "input_json_delta", "partial_json": "{}"}},
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 15}},
            {"type": "message_stop"},
        ),
        Tokens(9, 15, None, 3),
        6,
    ),
    **{
        f"responses, {end}": (
            named(
                {"type": "response.created", "response": {"status": "in_progress", "usage": None, "error": None}},
                {"type": "response.output_text.delta", "delta": "abc"},
                {"type": "response.output_text.done", "text": "abc"},
                {
                    "type": f"response.{end}",
                    "response": {
                        "object": "response",
                        "status": end,
                        "usage": {
                            "input_tokens": 9,
                            "input_tokens_details": {"cached_tokens": 2},
                            "output_tokens": 2,
                            "output_tokens_details": {"reasoning_tokens": 1},
                            "total_tokens": 11,
                        },
                    },
                },
            ),
            Tokens(9, 2, 11, 2, 1),
            3,
        )
        for end in ("completed", "incomplete", "failed")
    },
    "TGI's own": (
        stream(
            {"token": {"id": 1, "text": "a", "special": False}, "generated_text": None, "details": None},
            {
                "token": {"id": 2, "text": "</s>", "special": True},
                "generated_text": "a",
                "details": {"finish_reason": "eos_token", "generated_tokens": 2, "input_length": 4},
            },
            done=False,
        ),
        Tokens(4, 2),
        1,
    ),
    "SGLang's own": (
        stream(
            {"text": "a", "meta_info": {"prompt_tokens": 4, "completion_tokens": 1, "cached_tokens": 0}},
            {
                "text": "ab",
                "meta_info": {
                    "prompt_tokens": 4,
                    "completion_tokens": 2,
                    "cached_tokens": 0,
                    "finish_reason": {"type": "length", "length": 2},
                },
            },
        ),
        Tokens(4, 2, None, 0),
        2,
    ),
}
"""Streams by name, each with the tokens that it tells and the bytes of its text."""

WHOLE: Final[dict[str, tuple[Any, Tokens, int]]] = {
    "chat": (
        {"choices": [{"message": {"content": "abc"}, "finish_reason": "stop"}], "usage": usage(7, 2)},
        Tokens(7, 2, 9),
        3,
    ),
    "completions": ({"choices": [{"text": "abc"}], "usage": usage(7, 2)}, Tokens(7, 2, 9), 3),
    "embeddings": (
        {"object": "list", "data": [{"embedding": [0.1] * 99}], "usage": {"prompt_tokens": 4, "total_tokens": 4}},
        Tokens(4, None, 4),
        0,
    ),
    "messages": (
        {
            "type": "message",
            "content": [{"type": "text", "text": "abc"}, {"type": "tool_use", "name": "f", "input": {"a": 1}}],
            "stop_reason": "end_turn",
            "usage": {"input_tokens": 9, "output_tokens": 2},
        },
        Tokens(9, 2),
        10,
    ),
    "responses": (
        {
            "object": "response",
            "status": "completed",
            "error": None,
            "output": [{"type": "message", "content": [{"type": "output_text", "text": "abc"}]}],
            "usage": {"input_tokens": 9, "output_tokens": 2, "total_tokens": 11},
        },
        Tokens(9, 2, 11),
        3,
    ),
    "TGI's own": (
        [{"generated_text": "abc", "details": {"generated_tokens": 2, "prefill": [{"id": 1}, {"id": 2}]}}],
        Tokens(2, 2),
        3,
    ),
    "SGLang's own, two of them": (
        [{"text": "ab", "meta_info": {"prompt_tokens": 4, "completion_tokens": n}} for n in (1, 2)],
        Tokens(8, 3),
        4,
    ),
}
"""Whole answers, likewise."""
