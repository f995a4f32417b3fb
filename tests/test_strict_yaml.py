"""The YAML reader: what it takes, what it takes for text, and what it refuses."""

import json
import math
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate import strict_yaml
from tidegate.strict_yaml import MAX_DEPTH, NotYaml, read

LEAF = (
    st.none()
    | st.booleans()
    | st.integers(-(10**17), 10**17)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs", "Cn"]), max_size=10)
)
DATA = st.recursive(
    LEAF,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text("abc_-1", min_size=1), inner, max_size=4),
    max_leaves=12,
)


@pytest.mark.parametrize(
    ("text", "data"),
    [
        ("", None),
        ("# nothing\n", None),
        ("~", None),
        ("[1, -2, +3, 0]", [1, -2, 3, 0]),
        ("[1.5, .5, 2., 1e3, -1.5E-2]", [1.5, 0.5, 2.0, 1000.0, -0.015]),
        ("[.inf, -.inf, +.INF]", [math.inf, -math.inf, math.inf]),
        ("[true, False, TRUE]", [True, False, True]),
        ("[null, Null, ]", [None, None]),
        ("a: {b: [c]}", {"a": {"b": ["c"]}}),
        ("a:", {"a": None}),
        ("|\n two\n lines\n", "two\nlines\n"),
        ("\ufeffa: 1", {"a": 1}),
        ("'ünï'", "ünï"),
    ],
)
def test_plain_data_is_read(text: str, data: Any) -> None:
    assert read(text.encode()) == data


def test_not_a_number_is_read_as_such() -> None:
    assert math.isnan(read(b".nan"))


@pytest.mark.parametrize(
    "word",
    [
        "yes",
        "no",
        "on",
        "off",
        "y",
        "1:30",
        "010",
        "0x10",
        "0o7",
        "0b1",
        "1_000",
        "2024-01-01",
        "=",
        "<<",
        "9" * 19,
        "e5",
    ],
)
def test_what_older_yaml_would_guess_at_is_text(word: str) -> None:
    assert read(word.encode()) == word


@pytest.mark.parametrize("text", ["'1'", '"true"', "'null'", "|-\n 5"])
def test_what_is_quoted_is_text(text: str) -> None:
    assert isinstance(read(text.encode()), str)


@pytest.mark.parametrize("key", ["1", "yes", "2024-01-01", "null", "<<", "1.5"])
def test_keys_are_text_whatever_they_look_like(key: str) -> None:
    assert read(f"{key}: x".encode()) == {key: "x"}


@pytest.mark.parametrize(
    ("text", "problem", "place"),
    [
        (b"a: 1\nb: 2\na: 3", "key 'a' is given twice", (3, 1)),
        (b"a: &x 1\nb: *x", "aliases are not supported", (2, 4)),
        (b"a: !!int 1", "tags are not supported", (1, 4)),
        (b"a: !!python/object/apply:os.system [ls]", "tags are not supported", (1, 4)),
        (b"! a: 1", "tags are not supported", (1, 1)),
        (b"? [a]\n: 1", "a key must be plain text", (1, 3)),
        (b"{{a: 1}: 2}", "a key must be plain text", (1, 2)),
        (b"a: 1\n---\nb: 2", "expected a single document in the stream: but found another document", (2, 1)),
        (b"a: [1", "expected ',' or ']'", (1, 6)),
        (b"a:\n\tb: 1", "cannot start any token", (2, 1)),
        (b"a: b: c", "mapping values are not allowed here", (1, 5)),
        (b"\xff\xfea\x00", "expected UTF-8 text", (1, 1)),
        (b"a: 1\nb: \xe4", "expected UTF-8 text", (2, 4)),
        (b"a: 1\nb: \x07", "the character U+0007 is not allowed", (2, 1)),
        (b'a: "\\ud800"', "half a surrogate pair is not a character", (1, 4)),
    ],
)
def test_what_is_refused_is_refused_with_its_place(text: bytes, problem: str, place: tuple[int, int]) -> None:
    with pytest.raises(NotYaml) as caught:
        read(text)
    assert problem in caught.value.problem
    assert (caught.value.line, caught.value.column) == place


def test_a_mark_that_is_missing_leaves_the_place_open() -> None:
    assert strict_yaml._at(None, "odd").line is None


def test_nesting_is_bounded() -> None:
    assert read(b"[" * MAX_DEPTH + b"]" * MAX_DEPTH) is not None
    with pytest.raises(NotYaml, match="nested deeper"):
        read(b"[" * 500_000)
    with pytest.raises(NotYaml, match="nested deeper"):
        read(b"{a: " * 5000)


def test_a_variable_is_the_text_that_it_looks_like() -> None:
    """Nothing of the environment gets into a file that somebody else may write a part of."""
    assert strict_yaml.read(b"a: ${HOME}\nb: $(id)") == {"a": "${HOME}", "b": "$(id)"}


def test_a_yaml_bomb_is_not_lit() -> None:
    bomb = "a: &a [x, x]\n" + "".join(f"b{n}: &b{n} [*a, *a]\n" for n in range(30))
    with pytest.raises(NotYaml, match="aliases are not supported"):
        read(bomb.encode())


@settings(deadline=None)
@given(DATA)
def test_json_is_read_as_json(data: Any) -> None:
    assert read(json.dumps(data, ensure_ascii=False).encode()) == data


@settings(deadline=None)
@given(DATA)
def test_what_a_yaml_writer_wrote_is_read_back(data: Any) -> None:
    assert read(yaml.safe_dump(data, allow_unicode=True).encode()) == data


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=60) | st.text("ab:-[]{}&*!|>'\"%@`#?,\n \t0.~", max_size=60).map(str.encode))
def test_any_bytes_are_read_or_refused(text: bytes) -> None:
    try:
        read(text)
    except NotYaml as error:
        said = error.problem
    else:
        said = "read"
    assert said
    assert "\n" not in said
