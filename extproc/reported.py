"""What one JSON value of an answer tells: a whole answer, or the data of one server-sent event.

The forms are OpenAI's (chat, completions, responses, embeddings), Anthropic's messages, and the engines' own:
llama.cpp's ``timings``, TGI's ``details``, SGLang's ``meta_info``. They are told apart by what is there, not by the
path, because engines mix them. Nothing is taken for granted: what is missing or of another type is unknown, and never
zero.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import msgspec

MAX_TOKENS: Final = 100_000_000
"""More tokens than any request can have: a larger number is nonsense."""

LENIENT_BYTES: Final = 65_536
"""The largest value that is read by Python's own parser where msgspec refuses it: NaN, unpaired surrogates."""


class Tokens(NamedTuple):
    """What an engine counted, in tokens; ``None`` where it said nothing.

    Attributes:
        prompt: of the prompt, those that were in a cache included.
        completion: of the output, those of reasoning included.
        total: both together, as the engine says.
        cached: of the prompt, those that were in a prefix cache.
        reasoning: of the output, those that were thought only.
    """

    prompt: int | None = None
    completion: int | None = None
    total: int | None = None
    cached: int | None = None
    reasoning: int | None = None

    def then(self, later: "Tokens") -> "Tokens":
        """Return what is known after ``later``, which came later in the same answer.

        Counts are cumulative: the last one holds, but a zero never takes back a number (some servers close with one).
        """
        return Tokens(*(new if new or old is None else old for old, new in zip(self, later, strict=True)))


UNKNOWN: Final = Tokens()


@dataclass(slots=True)
class Report:
    """What a value tells.

    Attributes:
        tokens: its counts.
        text_bytes: the length in UTF-8 of the text that it brings, calls of tools and reasoning included.
        cumulative: that text is all the text so far, not what was added.
        failed: it says that the request failed.
        finished: it says why the output ended.
        ended: the answer's last event, by its own form.
        usage_alone: it is the event that exists for its usage and nothing else: ``choices`` is there and empty.
    """

    tokens: Tokens = UNKNOWN
    text_bytes: int = 0
    cumulative: bool = False
    failed: bool = False
    finished: bool = False
    ended: bool = False
    usage_alone: bool = False


class _Fields(msgspec.Struct):
    """All that is looked at; the rest, above all the vectors of embeddings, is passed over without being built."""

    type: Any = None
    object: Any = None
    error: Any = None
    usage: Any = None
    choices: Any = None
    response: Any = None  # OpenAI's later form
    message: Any = None  # Anthropic's
    delta: Any = None
    content: Any = None
    output: Any = None
    stop_reason: Any = None
    status: Any = None
    timings: Any = None  # llama.cpp
    token: Any = None  # TGI
    generated_text: Any = None
    details: Any = None
    text: Any = None  # SGLang
    meta_info: Any = None


_NAMES: Final = _Fields.__struct_fields__
_DECODER: Final = msgspec.json.Decoder(_Fields)
_LIST_DECODER: Final = msgspec.json.Decoder(list[_Fields])


def read(data: bytes | bytearray) -> Report | None:
    """Return what ``data`` tells, ``None`` if it is not JSON. Never raises."""
    try:
        return _of(_DECODER.decode(data))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass
    try:
        return _all(_LIST_DECODER.decode(data))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass
    if len(data) > LENIENT_BYTES:
        return None
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return None
    values = value if isinstance(value, list) else [value]
    return _all(
        _Fields(**{name: one[name] for name in _NAMES if name in one}) for one in values if isinstance(one, dict)
    )


def _all(answers: Iterable[_Fields]) -> Report:
    """Return what the answers of one batch tell together."""
    whole = Report()
    for number, answer in enumerate(answers):
        one = _of(answer)
        whole.tokens = one.tokens if number == 0 else Tokens(*map(_sum, whole.tokens, one.tokens))
        whole.text_bytes += one.text_bytes
        whole.failed |= one.failed
        whole.finished |= one.finished
    return whole


def _sum(one: int | None, other: int | None) -> int | None:
    return one if other is None else other if one is None else one + other


def _of(value: _Fields) -> Report:
    report = Report()
    if value.type is not None:
        _typed(value, report)
    if _is_error(value.error) or value.object == "error":
        report.failed = True
    if value.choices is not None:
        _choices(value.choices, report)
    if value.object == "response":
        report.text_bytes += _blocks(value.output)
        report.failed |= value.status == "failed"
        report.finished = True
    if value.usage is not None:
        report.tokens = report.tokens.then(_usage(value.usage))
        report.usage_alone = value.choices == [] and isinstance(value.usage, dict) and not report.failed
    elif isinstance(value.timings, dict):
        report.tokens = _timings(value.timings)
    if value.token is not None or value.generated_text is not None:
        _tgi(value, report)
    if isinstance(value.meta_info, dict):
        _sglang(value, value.meta_info, report)
    return report


def _is_error(error: Any) -> bool:
    return isinstance(error, dict | str) and bool(error)


def _size(text: Any) -> int:
    if not isinstance(text, str):
        return 0
    return len(text) if text.isascii() else len(text.encode("utf-8", "replace"))


def _count(value: Any) -> int | None:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_TOKENS else None


def _held(value: Any, name: str) -> Mapping[str, Any]:
    held = value.get(name) if isinstance(value, Mapping) else None
    return held if isinstance(held, dict) else {}


def _usage(usage: Any) -> Tokens:
    if not isinstance(usage, dict):
        return Tokens()
    get = usage.get
    if "prompt_tokens" in usage or "completion_tokens" in usage:
        return Tokens(
            prompt=_count(get("prompt_tokens")),
            completion=_count(get("completion_tokens")),
            total=_count(get("total_tokens")),
            cached=_count(_held(usage, "prompt_tokens_details").get("cached_tokens")),
            reasoning=_count(
                _held(usage, "completion_tokens_details").get("reasoning_tokens", get("reasoning_tokens"))
            ),
        )
    prompt, read_from_cache = _count(get("input_tokens")), _count(get("cache_read_input_tokens"))
    if prompt is not None and "input_tokens_details" not in usage:
        # Anthropic counts what was read from the cache, or written to it, apart.
        prompt += (read_from_cache or 0) + (_count(get("cache_creation_input_tokens")) or 0)
    return Tokens(
        prompt=prompt,
        completion=_count(get("output_tokens")),
        total=_count(get("total_tokens")),
        cached=_count(_held(usage, "input_tokens_details").get("cached_tokens", read_from_cache)),
        reasoning=_count(_held(usage, "output_tokens_details").get("reasoning_tokens")),
    )


def _timings(timings: Mapping[str, Any]) -> Tokens:
    """Read what llama.cpp adds to the last chunk of its streams, whether usage was asked for or not."""
    evaluated, cached = _count(timings.get("prompt_n")), _count(timings.get("cache_n"))
    return Tokens(
        prompt=None if evaluated is None or cached is None else evaluated + cached,
        completion=_count(timings.get("predicted_n")),
        cached=cached,
    )


def _choices(choices: Any, report: Report) -> None:
    for choice in choices if isinstance(choices, list) else ():
        if not isinstance(choice, dict):
            continue
        report.text_bytes += _size(choice.get("text"))
        said = choice.get("delta") or choice.get("message")
        if isinstance(said, dict):
            for name in ("content", "reasoning_content", "reasoning", "refusal"):
                report.text_bytes += _size(said.get(name))
            calls = said.get("tool_calls")
            for call in calls if isinstance(calls, list) else ():
                function = _held(call, "function")
                report.text_bytes += _size(function.get("name")) + _size(function.get("arguments"))
        if choice.get("finish_reason") is not None:
            report.finished = True
            report.failed |= choice["finish_reason"] == "error"


_LAST: Final = frozenset({"response.completed", "response.incomplete", "response.failed", "message_stop"})
_PARTS: Final = ("text", "thinking", "partial_json", "arguments", "refusal")


def _typed(value: _Fields, report: Report) -> None:
    """Read Anthropic's messages and their events, and the events of OpenAI's responses: both name their type."""
    kind = value.type if isinstance(value.type, str) else ""
    report.ended = kind in _LAST
    report.failed = kind in {"error", "response.failed"}
    if kind.startswith("response."):
        if isinstance(value.delta, str) and not kind.endswith("audio.delta"):
            report.text_bytes = _size(value.delta)
        if isinstance(value.response, dict):
            report.tokens = _usage(value.response.get("usage"))
            report.finished = report.ended
    elif kind == "message_start":
        report.tokens = _usage(_held(value.message, "usage"))
    elif isinstance(value.delta, dict):
        report.text_bytes = sum(_size(value.delta.get(part)) for part in _PARTS)
        report.finished = value.delta.get("stop_reason") is not None
    elif kind == "message":
        report.text_bytes = _blocks(value.content)
        report.finished = value.stop_reason is not None


def _blocks(content: Any) -> int:
    """Return the size of the text in the content blocks of a message, or in the items of a response."""
    size = 0
    for block in content if isinstance(content, list) else ():
        if isinstance(block, dict):
            size += sum(_size(block.get(part)) for part in _PARTS) + _blocks(block.get("content"))
            if isinstance(block.get("input"), dict):
                size += len(msgspec.json.encode(block["input"]))
    return size


def _tgi(value: _Fields, report: Report) -> None:
    details = value.details if isinstance(value.details, dict) else {}
    prefill = details.get("prefill")
    report.tokens = report.tokens.then(
        Tokens(
            prompt=_count(details.get("input_length"))
            or (len(prefill) if prefill and isinstance(prefill, list) else None),
            completion=_count(details.get("generated_tokens")),
        )
    )
    if isinstance(value.token, dict):
        if not value.token.get("special"):
            report.text_bytes += _size(value.token.get("text"))
    else:
        report.text_bytes += _size(value.generated_text)
    # The last event of a stream holds the whole text, and so ends it; there is no other mark.
    report.finished = report.ended = value.generated_text is not None


def _sglang(value: _Fields, about: Mapping[str, Any], report: Report) -> None:
    report.tokens = report.tokens.then(
        Tokens(
            prompt=_count(about.get("prompt_tokens")),
            completion=_count(about.get("completion_tokens")),
            cached=_count(about.get("cached_tokens")),
        )
    )
    report.text_bytes, report.cumulative = _size(value.text), True
    reason = about.get("finish_reason")
    report.finished = reason is not None
    report.failed |= _held(about, "finish_reason").get("type") == "abort"
