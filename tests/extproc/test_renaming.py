"""The model's name in a body, replaced in its place."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extproc.injection import injected
from extproc.renaming import renamed

NAME = 'new "näme"'
WRITTEN = json.dumps(NAME, ensure_ascii=False).encode()


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b'{"model":"old","n":1.0}', b'{"model":%s,"n":1.0}'),
        (b' {"a":{"model":"old"}, "model" :\t"ol\\u0064" , "b":[1e400]}\n', None),
        (
            b'{"a":{"model":"old"},"model":\n"ol\\u0064","b":"\\ud83d"}',
            b'{"a":{"model":"old"},"model":\n%s,"b":"\\ud83d"}',
        ),
        (b'{"text":"\\"model\\": \\"x\\"","model":"old"}', b'{"text":"\\"model\\": \\"x\\"","model":%s}'),
        (b'{"text":"\\\\","model":"old"}', b'{"text":"\\\\","model":%s}'),
        (b'{"model":"old","a":NaN}', b'{"model":%s,"a":NaN}'),
        (b'\xef\xbb\xbf{"model":"old"}', b'\xef\xbb\xbf{"model":%s}'),
        (b'{"a":{"model":null},"model":null}', b'{"a":{"model":null},"model":%s}'),
        (b'{"prompt":"p"}', b'{"model":%s,"prompt":"p"}'),
        (b"{}", b'{"model":%s}'),
    ],
)
def test_the_name_is_replaced_and_every_other_byte_stays(body: bytes, expected: bytes | None) -> None:
    if expected is None:
        expected = body.replace(b'"ol\\u0064"', b"%s")
    assert renamed(NAME, body) == expected.replace(b"%s", WRITTEN)


@pytest.mark.parametrize(
    "body",
    [
        *(b"", b"[]", b'[{"model":"old"}]', b'"model"', b"{", b'{"model":"old"', b'{"model":3}', b'{"model":["old"]}'),
        b'{"mod\\u0065l":"old"}',
        '{"model":"old"}'.encode("utf-16"),
        b'--x\r\ncontent-disposition: form-data; name="model"\r\n\r\nold\r\n--x--\r\n',
        b'{"a":' * 3_000 + b'{"model":"old"}' + b"}" * 3_000,
    ],
)
def test_what_cannot_be_renamed_is_not(body: bytes) -> None:
    assert renamed("new", body) is None


def test_a_body_that_has_the_name_already_stays_as_it_is() -> None:
    assert renamed("new", b'{"a":{"model":"old"},"model":"new"}') == b'{"a":{"model":"old"},"model":"new"}'


def test_work_is_bounded() -> None:
    many = b'{"x":[' + b",".join([b'{"model":"old"}'] * 20_000) + b'],"model":"old"}'
    assert renamed("new", many) is None


def test_usage_can_be_asked_for_in_what_was_renamed() -> None:
    body = renamed("new", b'{ "model": "old", "stream": true, "x": 1.50 }')
    assert body is not None
    assert injected(body) == b'{"stream_options":{"include_usage":true}, "model": "new", "stream": true, "x": 1.50 }'


VALUES = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False) | st.text(max_size=8) | st.just("model"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["model", "a", '"model":']), inner),
    max_leaves=8,
)


@given(
    st.dictionaries(st.sampled_from(["a", "b", "models", '\\"model']), VALUES),
    st.text(min_size=1, max_size=8),
    st.text(min_size=1, max_size=8),
    st.booleans(),
)
def test_a_renamed_body_says_the_same_but_for_the_name(
    members: dict[str, Any], old: str, new: str, escaped: bool
) -> None:
    value = {**members, "model": old, "z": {"model": old}}
    body = json.dumps(value, ensure_ascii=escaped).encode()
    changed = renamed(new, body)
    assert changed is not None
    assert json.loads(changed) == {**value, "model": new}
    assert (
        len(changed) - len(body)
        == len(json.dumps(new, ensure_ascii=False).encode()) - len(json.dumps(old, ensure_ascii=escaped).encode())
        or old == new
    )


@given(st.binary(max_size=60))
def test_any_bytes_are_renamed_or_not(body: bytes) -> None:
    changed = renamed("new", body)
    assert changed is None or json.loads(changed)["model"] == "new"
