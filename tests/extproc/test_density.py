import json
import random
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from extproc import density
from extproc.errors import ApiError
from tests.extproc.json_bodies import values

SIZE = 2_000_000


def _refused(body: bytes) -> str:
    with pytest.raises(ApiError) as caught:
        density.check(body)
    assert (caught.value.status, caught.value.code) == (413, "request_too_dense")
    return caught.value.message


def _array(item: bytes, times: int) -> bytes:
    return b'{"model":"m","prompt":[' + b",".join([item] * times) + b"]}"


@pytest.mark.parametrize("item", [b"[]", b"{}", b'{"a":{}}', b'""', b"1", b"null", b'[{"a":1}]', b'"a,b"'])
def test_a_large_body_of_nothing_but_structure_is_refused(item: bytes) -> None:
    assert "at most 1200000 values" in _refused(_array(item, 5 * SIZE // (len(item) + 1)))


@pytest.mark.parametrize(
    "text",
    ["[],", '{"a":{}},', '"', "\\", '\\"', '"[', '\\\\"[', "\n[{", '\\n"[,', "\u00e9[[", "1" * 500, "\ud83d["],
)
def test_text_may_be_of_any_kind(text: str) -> None:
    body = json.dumps({"model": "m", "prompt": text * (SIZE // len(text))}).encode()

    density.check(body)
    density.check(json.dumps(json.loads(body), ensure_ascii=False).encode("utf-8", "surrogatepass"))


def test_what_people_send_passes() -> None:
    rng = random.Random(1)
    ids = [rng.randrange(200_000) for _ in range(1_000_000)]
    bodies: list[dict[str, Any]] = [
        {"prompt": ids},
        {"input": [ids[start : start + 500] for start in range(0, len(ids), 500)]},
        {"input": ["word " * 20] * 10_000},
        {"messages": [{"role": "user", "content": "x" * 3000}] * 1000},
        {"messages": [{"role": "user", "content": "hello, [you]"}] * 50_000},
    ]
    for body in bodies:
        density.check(json.dumps({"model": "m", **body}).encode())
        density.check(json.dumps({"model": "m", **body}, indent=2).encode())


def test_a_small_body_is_not_counted() -> None:
    body = b"[" * density.UNCHECKED_BYTES
    density.check(body)
    _refused(body + b" ")


def test_long_numbers_are_refused_where_they_are_numbers() -> None:
    assert "400 digits in one number" in _refused(_array(b"9" * 401, SIZE // 402))
    density.check(_array(b"9" * 400, SIZE // 401))
    density.check(_array(b'"' + b"9" * 401 + b'"', SIZE // 404))
    assert "10000000 digits" in _refused(_array(b"9" * 400, 25_001))


@pytest.mark.parametrize("shift", [0, 1, 200, 399, 400])
def test_a_long_number_is_found_across_slices(shift: int) -> None:
    start = 10 * density._SLICE - shift
    body = b'{"a":' + b" " * (start - 5) + b"9" * 401 + b"}"

    assert "in one number" in _refused(body)


def _counted(monkeypatch: pytest.MonkeyPatch, body: bytes, most: int, size: int) -> bool:
    monkeypatch.setattr(density, "UNCHECKED_BYTES", 0)
    monkeypatch.setattr(density, "MAX_WEIGHT", most)
    monkeypatch.setattr(density, "_SLICE", size)
    try:
        density.check(body)
    except ApiError:
        return False
    return True


def _weight(value: Any) -> int:
    if isinstance(value, list):
        return density.CONTAINER_WEIGHT + max(0, len(value) - 1) + sum(map(_weight, value))
    if isinstance(value, dict):
        members = density.KEY_WEIGHT * len(value) + max(0, len(value) - 1)
        return density.CONTAINER_WEIGHT + members + sum(map(_weight, value.values()))
    return 0


texts = st.text(st.sampled_from('a\\"[{,:1\n\u00e9'), max_size=12)


@given(st.one_of(values, st.lists(texts), st.dictionaries(texts, texts)), st.integers(1, 9))
def test_the_count_is_that_of_the_values_however_the_body_is_sliced(value: Any, size: int) -> None:
    body = json.dumps(value).encode()
    weight = _weight(json.loads(body))
    with pytest.MonkeyPatch.context() as patch:
        assert _counted(patch, body, weight, size)
        assert weight == 0 or not _counted(patch, body, weight - 1, size)


@given(st.text(st.sampled_from('a\\"[{]},:1 '), max_size=40))
def test_what_is_built_was_counted_whatever_the_bytes(text: str) -> None:
    try:
        weight = _weight(msgspec.json.decode(text.encode()))
    except msgspec.DecodeError:
        return
    with pytest.MonkeyPatch.context() as patch:
        assert weight == 0 or not _counted(patch, text.encode(), weight - 1, 3)
