"""Usage asked for in a client's name: one place is changed, every other byte is the client's."""

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from extproc.injection import injected

ASKED = b'"stream_options":{"include_usage":true}'


def test_it_is_put_in_where_there_is_none() -> None:
    body = b' \n{ "model": "m",  "stream":true, "x": 1.0e2, "t": "\\u00e9" }\r\n'
    assert injected(body) == b" \n{" + ASKED + b', "model": "m",  "stream":true, "x": 1.0e2, "t": "\\u00e9" }\r\n'


@pytest.mark.parametrize(
    ("options", "becomes"),
    [
        (b"null", b'{"include_usage":true}'),
        (b"{}", b'{"include_usage":true}'),
        (b"{ }", b'{"include_usage":true }'),
        (b'{"include_usage":false}', b'{"include_usage":true}'),
        (b'{"include_usage" : null , "a":1}', b'{"include_usage" : true , "a":1}'),
        (b'{"continuous_usage_stats": true}', b'{"include_usage":true,"continuous_usage_stats": true}'),
        (b'{"a":{"include_usage":false},"include_usage":false}', b'{"a":{"include_usage":false},"include_usage":true}'),
        (b'{"include_usage":false,"a":{"include_usage":false}}', b'{"include_usage":true,"a":{"include_usage":false}}'),
    ],
)
def test_options_that_do_not_ask_are_made_to(options: bytes, becomes: bytes) -> None:
    around = b'{"stream": true, "stream_options" :\t%b, "model":"m"}'
    assert injected(around % options) == around % becomes


@pytest.mark.parametrize(
    "body",
    [
        b'{"stream":true,"stream_options":{"include_usage":true}}',
        b'{"stream":true,"stream_options":{"include_usage":"yes"}}',
        b'{"stream":true,"stream_options":[]}',
        b'{"stream":true,"stream_options":"x"}',
        b'{"stream":true,"stream_options":1}',
        b'{"stream":false}',
        b'{"model":"m"}',
        b"{}",
        b"[]",
        b"",
        b"{",
        b'{"stream":true',
        b"\x1f\x8b\x08",
        '{"stream":true}'.encode("utf-16"),
        b'{"stream":true,"stream_options":{"include_usage":false},"x":NaN}',
        b"[" * 100_000,
    ],
)
def test_what_asks_already_or_cannot_ask_is_left_alone(body: bytes) -> None:
    assert injected(body) is None


@pytest.mark.parametrize("stream", [b"true", b"1", b'"true"', b"1.0"])
def test_a_stream_is_asked_for_as_engines_read_it(stream: bytes) -> None:
    assert injected(b'{"stream":' + stream + b"}") == b"{" + ASKED + b',"stream":' + stream + b"}"


def test_a_byte_order_mark_stays_first() -> None:
    assert injected(b'\xef\xbb\xbf{"stream":true}') == b"\xef\xbb\xbf{" + ASKED + b',"stream":true}'


def test_what_only_a_lenient_parser_reads_is_asked_for_too() -> None:
    body = b'{"stream":true,"temperature":NaN,"s":"\\ud83d"}'
    assert injected(body) == b"{" + ASKED + b"," + body[1:]


def test_members_that_look_the_same_inside_others_are_left_alone() -> None:
    inside = b'{"stream_options":null,"t":"\\"stream_options\\":null"}'
    body = b'{"stream":true,"a":' + inside + b',"stream_options":null,"b":' + inside + b"}"
    changed = b'{"stream":true,"a":' + inside + b',"stream_options":{"include_usage":true},"b":' + inside + b"}"
    assert injected(body) == changed


def test_a_name_spelled_with_escapes_is_understood_and_left_alone() -> None:
    assert injected(b'{"stream":true,"stream\\u005foptions":null}') is None


def test_a_body_full_of_decoys_is_given_up_after_a_bounded_time() -> None:
    decoys = b",".join([b'{"stream_options":null}'] * 100_000)
    assert injected(b'{"stream":true,"a":[' + decoys + b'],"stream_options":null}') is None


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-9, 9)
    | st.sampled_from(["", "é", '"', "\\", "😀", "null"])
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["stream_options", "include_usage", "stream", "a", 'q"\\']), inner, max_size=4
        )
    ),
    max_leaves=12,
)


@settings(suppress_health_check=[HealthCheck.too_slow])  # of the first example alone
@given(
    st.dictionaries(st.sampled_from(["model", "stream_options", "a", "é"]), JSON, max_size=4),
    st.booleans(),
    st.sampled_from([None, 2]),
)
def test_what_comes_out_differs_from_what_went_in_by_the_asking_alone(
    members: dict[str, Any], plain: bool, indent: int | None
) -> None:
    value = {**members, "stream": True}
    body = json.dumps(value, ensure_ascii=plain, indent=indent).encode()
    changed = injected(body)
    options = value.get("stream_options")
    if changed is None:
        asks = isinstance(options, dict) and options.get("include_usage") in (True, 1, "1", "t", "y")
        assert asks or not isinstance(options, dict | None)
        return
    expected = {**value, "stream_options": {**(options or {}), "include_usage": True}}
    assert json.loads(changed) == expected
