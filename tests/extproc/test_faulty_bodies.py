"""What a hostile or broken client may put into a body, over all APIs that read one and over the whole exchange."""

import json
import time
from collections.abc import Mapping
from typing import Any

import pytest

from extproc import density
from extproc.apis import APIS, match
from extproc.content_encoding import CODINGS
from tests.extproc.compressed import COMPRESS
from tests.extproc.desks import FakeDesk
from tests.extproc.envoy_model import POST, Result, ask
from tests.extproc.json_bodies import PYTHON_WORDS

CHAT = "/v1/chat/completions"
GOOD: Mapping[str, dict[str, Any]] = {
    CHAT: {"model": "m", "messages": [{"role": "user", "content": "hello"}]},
    "/v1/completions": {"model": "m", "prompt": "hello"},
    "/v1/embeddings": {"model": "m", "input": "hello"},
    "/v1/responses": {"model": "m", "input": "hello"},
    "/tokenize": {"model": "m", "prompt": "hello"},
    "/detokenize": {"model": "m", "tokens": [1, 2]},
    "/v1/rerank": {"model": "m", "query": "hello", "documents": ["a", "b"]},
    "/v1/score": {"model": "m", "text_1": "hello", "text_2": "a"},
    "/pooling": {"model": "m", "input": "hello"},
    "/classify": {"model": "m", "input": "hello"},
    "/generate": {"model": "m", "text": "hello"},
    "/v1/audio/speech": {"model": "m", "input": "hello"},
    "/v1/images/generations": {"model": "m", "prompt": "hello"},
}
GENERATING = (CHAT, "/v1/completions")
every_api = pytest.mark.parametrize("path", GOOD)


async def _ask(body: bytes, path: str = CHAT, **headers: str) -> tuple[Result, FakeDesk]:
    desk = FakeDesk()
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return await ask(desk, {**POST, ":path": path, **named}, body), desk


async def _refused(body: bytes, path: str = CHAT, **headers: str) -> tuple[int, dict[str, Any]]:
    """Return status and error, which must be an answer to the client, in words for people."""
    result, desk = await _ask(body, path, **headers)
    assert result.kind == "answered", result
    assert set(result.fault) == {"message", "type", "param", "code"}
    assert not any(word in result.body.decode() for word in PYTHON_WORDS)
    assert (desk.live, len(desk.refusals)) == (set(), 1)
    return result.status, result.fault


def _written(path: str, **fields: Any) -> bytes:
    return json.dumps({**GOOD[path], **fields}).encode()


def _with(path: str, field: str, text: str) -> bytes:
    """Return a good body with one more field, as JSON text."""
    return _written(path)[:-1] + f', "{field}": {text}}}'.encode()


@every_api
@pytest.mark.parametrize("again", ['"model"', '"mod\\u0065l"', '"\\u006d\\u006f\\u0064\\u0065\\u006c"'])
async def test_two_models_are_refused(path: str, again: str) -> None:
    body = _written(path)[:-1] + f', {again}: "dear"}}'.encode()

    status, error = await _refused(body, path)

    assert (status, error["param"], error["code"]) == (400, "model", "duplicate_parameter")


@pytest.mark.parametrize("path", GENERATING)
@pytest.mark.parametrize("field", ["max_tokens", "n", "stream"])
async def test_two_of_any_field_that_matters_are_refused(path: str, field: str) -> None:
    status, error = await _refused(_with(path, field, f'1, "{field}": 1'), path)

    assert (status, error["param"]) == (400, field)


@every_api
@pytest.mark.parametrize("rest", [b"{}", b'{"model": "b"}', b"x", b",", b"]", b"\0", b"\xff", b"//", b"data: [DONE]"])
async def test_what_follows_the_object_is_refused(path: str, rest: bytes) -> None:
    assert (await _refused(_written(path) + rest, path))[0] == 400


@every_api
@pytest.mark.parametrize("cut", [1, 2, 10, 20, -1])
async def test_what_is_cut_short_is_refused(path: str, cut: int) -> None:
    assert (await _refused(_written(path)[:cut], path))[1]["code"] == "invalid_json"


@every_api
@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32"])
async def test_a_body_in_another_unicode_is_read_as_engines_read_it(path: str, encoding: str) -> None:
    _, plain = await _ask(_written(path), path)
    result, desk = await _ask(_written(path).decode().encode(encoding), path)

    assert result.kind == "routed"
    assert (desk.counted, desk.requests) == (plain.counted, plain.requests)


async def test_a_large_body_in_another_unicode_is_refused_since_nobody_counted_it() -> None:
    # A byte of this letter is that of a quotation mark: what follows would be taken for a string.
    text = '{"x": "\u0122", "model": "m", "prompt": [' + "[]," * density.UNCHECKED_BYTES + "1]}"

    assert (await _refused(text.encode("utf-16"), "/v1/completions"))[1]["code"] == "invalid_json"


@every_api
@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity", '"\\ud800"', '["\\udc00\\ud800"]', "1e400", "-1e400"])
async def test_what_engines_read_though_it_is_no_json_is_routed(path: str, text: str) -> None:
    assert (await _ask(_with(path, "temperature", text), path))[0].kind == "routed"


@pytest.mark.parametrize("path", GENERATING)
@pytest.mark.parametrize(
    "text",
    [
        *("9" * 5000, "-" + "9" * 5000, "1e400", "-1e400", "NaN", "Infinity", "-1", "0", "-0", "0.5", "1.5", "true"),
        *('"64 "', '"0x40"', '"-1"', '""', '"\\ud800"', '"' + "9" * 5000 + '"', "[1]", "{}", '"\u0661"', "false"),
    ],
)
@pytest.mark.parametrize("field", ["max_tokens", "n"])
async def test_what_is_no_number_of_tokens_is_refused(path: str, field: str, text: str) -> None:
    status, error = await _refused(_with(path, field, text), path)

    assert status == 400
    assert error["param"] == field or (error["code"], len(text) > 4300) == ("invalid_json", True)


@pytest.mark.parametrize("path", GENERATING)
@pytest.mark.parametrize(
    ("text", "tokens"), [("64", 64), ("64.0", 64), ('"64"', 64), ("1e30", 10_000_000), ("9" * 4000, 10_000_000)]
)
async def test_a_limit_is_taken_as_engines_take_it_and_bounded(path: str, text: str, tokens: int) -> None:
    result, desk = await _ask(_with(path, "max_tokens", text), path)

    assert result.kind == "routed"
    assert desk.requests[0].max_output_tokens == tokens


@pytest.mark.parametrize("n", ["1e18", "9" * 4000, str(2**63), str(2**64)])
async def test_a_huge_number_of_choices_reserves_a_bounded_number_of_tokens(n: str) -> None:
    result, desk = await _ask(_with(CHAT, "n", n).replace(b'"n"', b'"max_tokens": 99999999, "n"'))

    assert result.kind == "routed"
    assert desk.requests[0].max_output_tokens == 10_000_000 * 1024


@every_api
@pytest.mark.parametrize("opening", ["[", '{"a":', '[{"a":['])
@pytest.mark.parametrize("field", ["model", "x", "messages", "prompt", "input", "tools"])
async def test_absurd_depth_is_refused_in_no_time(path: str, field: str, opening: str) -> None:
    body = f'{{"{field}": {opening * (100_000 // len(opening))}'.encode()
    took = []
    for _ in range(3):
        began = time.thread_time()
        status, error = await _refused(body, path)
        took.append(time.thread_time() - began)

        assert (status, error["code"]) == (400, "invalid_json")
    # It takes 1 ms, unless garbage is collected meanwhile; what is held off is a search of the whole depth.
    assert min(took) < 0.5


async def test_a_closed_depth_is_refused_too() -> None:
    depth = 100_000

    assert (await _refused(_with(CHAT, "x", "[" * depth + "]" * depth)))[0] == 400


@every_api
async def test_thirty_megabytes_of_structure_are_refused_and_of_text_are_not(path: str) -> None:
    field = list(GOOD[path])[1]
    dense = _with(path, "x", "[" + "[]," * 10_000_000 + "1]")

    assert (await _refused(dense, path))[0] == 413
    text = [{"role": "user", "content": "hello, " * 4_000_000}] if field == "messages" else "hello, " * 4_000_000
    assert (await _ask(_written(path, **{field: text}), path))[0].kind == "routed"


@every_api
@pytest.mark.parametrize("coding", CODINGS)
async def test_a_compressed_body_is_decided_on_as_if_it_were_not(path: str, coding: str) -> None:
    plain, desk = await _ask(_written(path), path)
    result, other = await _ask(COMPRESS[coding](_written(path)), path, content_encoding=coding.upper())

    assert (result.kind, result.metadata) == ("routed", plain.metadata)
    assert other.requests == desk.requests


@pytest.mark.parametrize("coding", CODINGS)
async def test_a_bomb_and_a_broken_stream_are_refused(coding: str) -> None:
    bomb = COMPRESS[coding](_written(CHAT, messages="a" * 50_000_000))

    assert (await _refused(bomb, content_encoding=coding))[0] == 413
    assert (await _refused(bomb[: len(bomb) // 2][:200], content_encoding=coding))[0] in {400, 413}
    assert (await _refused(_written(CHAT), content_encoding=coding))[0] == 400
    assert (await _refused(COMPRESS[coding](b"[1]"), content_encoding=coding))[1]["code"] == "invalid_type"
    assert (await _refused(b"", content_encoding=coding))[1]["code"] == "empty_body"


@pytest.mark.parametrize("coding", ["deflate", "gzip, br", "lz4"])
async def test_an_unsupported_coding_is_told_what_is(coding: str) -> None:
    result, _ = await _ask(b"x", content_encoding=coding)

    assert (result.kind, result.status, result.headers["accept-encoding"]) == ("answered", 415, "gzip, br, zstd")


def test_every_api_is_held_to_this() -> None:
    held = {match({**POST, ":path": path}).name for path in GOOD}
    # Anthropic's answers have a form of their own (test_anthropic); forms are no JSON (test_form).
    apart = {"messages", "count_tokens", *(api.name for api in APIS.values() if api.parse is None)}
    assert held == {api.name for api in APIS.values()} - apart
