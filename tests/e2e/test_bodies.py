"""Bodies of every kind, through a real Envoy to an engine."""

import json
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.stack import MODEL, Stack, configuration, engines, up
from tests.extproc.compressed import COMPRESS
from tests.extproc.json_bodies import PYTHON_WORDS

CHAT = {"model": MODEL, "messages": [{"role": "user", "content": "hello"}], "max_tokens": 2}
GOOD = json.dumps(CHAT).encode()


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    folder = tmp_path_factory.mktemp("bodies")
    with engines(folder, "h100") as ports, up(folder, configuration(ports)) as running:
        yield running


def _send(stack: Stack, body: Any, path: str = "/chat/completions", **headers: str) -> tuple[int, Any, dict[str, str]]:
    """Return status, JSON and headers. Without a ``content-length`` the body is sent in chunks."""
    named = {"content-type": "application/json", **{name.replace("_", "-"): value for name, value in headers.items()}}
    request = urllib.request.Request(f"{stack.clients}{path}", body, named)
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, json.load(answer), dict(answer.headers)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error), dict(error.headers)


def _with(text: str) -> bytes:
    return GOOD[:-1] + b", " + text.encode() + b"}"


@pytest.mark.parametrize("coding", COMPRESS)
def test_a_compressed_body_reaches_the_engine_as_it_was_sent(stack: Stack, coding: str) -> None:
    status, answer, _ = _send(stack, COMPRESS[coding](GOOD), content_encoding=coding)

    assert (status, answer["usage"]["completion_tokens"]) == (200, 2)


def test_a_body_in_chunks_is_decided_on_whole(stack: Stack) -> None:
    pieces = [GOOD[start : start + 7] for start in range(0, len(GOOD), 7)]

    assert _send(stack, iter(pieces))[0] == 200
    assert _send(stack, iter([COMPRESS["gzip"](GOOD)]), content_encoding="gzip")[0] == 200


REFUSED: dict[str, tuple[bytes, dict[str, str], int, str]] = {
    "empty": (b"", {}, 400, "empty_body"),
    "two models": (_with('"model": "dear"'), {}, 400, "duplicate_parameter"),
    "two objects": (GOOD + GOOD, {}, 400, "invalid_json"),
    "truncated": (GOOD[:-5], {}, 400, "invalid_json"),
    "no text": (b"\xff\xfe\xff", {}, 400, "invalid_json"),
    "depth": (_with('"x": ' + "[" * 100_000), {}, 400, "invalid_json"),
    "5000 digits": (_with('"n": ' + "9" * 5000), {}, 400, "invalid_json"),
    "infinite": (_with('"n": 1e400'), {}, 400, "invalid_type"),
    "negative": (_with('"n": -1'), {}, 400, "invalid_value"),
    "boolean": (_with('"n": true'), {}, 400, "invalid_type"),
    "an array": (b"[" + GOOD + b"]", {}, 400, "invalid_type"),
    "structure": (_with('"x": [' + "[]," * 10_000_000 + "1]"), {}, 413, "request_too_dense"),
    "gzip bomb": (COMPRESS["gzip"](b"a" * 300_000_000), {"content_encoding": "gzip"}, 413, "request_too_large"),
    "br bomb": (COMPRESS["br"](b"a" * 300_000_000), {"content_encoding": "br"}, 413, "request_too_large"),
    "zstd bomb": (COMPRESS["zstd"](b"a" * 300_000_000), {"content_encoding": "zstd"}, 413, "request_too_large"),
    "broken gzip": (GOOD, {"content_encoding": "gzip"}, 400, "invalid_content_encoding"),
    "deflate": (GOOD, {"content_encoding": "deflate"}, 415, "unsupported_content_encoding"),
    "two codings": (GOOD, {"content_encoding": "gzip, br"}, 415, "unsupported_content_encoding"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_read_is_answered_in_the_apis_own_words(stack: Stack, case: str) -> None:
    body, headers, status, code = REFUSED[case]

    got, answer, answered = _send(stack, body, **headers)

    assert (got, answer["error"]["code"]) == (status, code)
    assert not any(word in json.dumps(answer) for word in PYTHON_WORDS)
    assert status != 415 or answered["accept-encoding"] == "gzip, br, zstd"


@pytest.mark.parametrize("text", ['"x": NaN', '"x": "\\ud800"', '"x": -Infinity'])
def test_what_engines_read_though_it_is_no_json_reaches_them(stack: Stack, text: str) -> None:
    assert _send(stack, _with(text))[0] != 500


def test_others_are_served_while_large_bodies_are_read(stack: Stack) -> None:
    serving = stack.child("serve")
    dense = REFUSED["structure"][0]
    text = json.dumps({**CHAT, "messages": [{"role": "user", "content": "hello, [you] " * 2_300_000}]}).encode()
    ids = json.dumps({"model": MODEL, "prompt": list(range(1_000_000)), "max_tokens": 1}).encode()
    statuses: list[int] = []

    def flood() -> None:
        for _ in range(3):
            statuses.extend(
                (_send(stack, dense)[0], _send(stack, text)[0], _send(stack, ids, "/completions")[0]),
            )

    flooding = [threading.Thread(target=flood) for _ in range(2)]
    for thread in flooding:
        thread.start()
    before = most = serving.memory_info().rss
    served = 0
    while any(thread.is_alive() for thread in flooding):
        # Answered by Tidegate itself: the engine, which reads large bodies too, is not to be measured.
        assert stack.ask(max_tokens=0)[0] == 400
        served += 1
        most = max(most, serving.memory_info().rss)
    # 413 for structure; the engine itself refuses what is longer than its context.
    assert sorted(statuses) == [400] * 12 + [413] * 6
    assert served > 50  # 700 on two cores, the half of them within 2 ms
    assert most - before < 1_000_000_000


def test_nothing_is_left_in_flight_and_nothing_failed(stack: Stack) -> None:
    stack.settle()

    assert stack.inflight() == {}
    assert stack.total("tidegate_ext_proc_streams_total", outcome="failed") == 0
    assert "Traceback" not in stack.log()
    assert "RecursionError" not in stack.log()
