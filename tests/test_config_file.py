"""The configuration as a file: missing, too large, not YAML, anything at all."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.configurations import EVERY_KEY, EXAMPLE, changed, faults
from tidegate.config import MAX_FILE_BYTES, Config, ConfigError, load, parse


def test_a_file_is_read(tmp_path: Path) -> None:
    file = tmp_path / "tidegate.yaml"
    file.write_bytes(EXAMPLE)
    assert load(file) == parse(EXAMPLE, "x")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    file = tmp_path / "none.yaml"
    with pytest.raises(ConfigError) as caught:
        load(file)
    assert str(caught.value) == f"{file}: cannot be read (No such file or directory); expected a YAML file"


def test_a_directory_is_not_a_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path)
    assert str(caught.value) == f"{tmp_path}: cannot be read (Is a directory); expected a YAML file"


def test_a_file_of_any_size_is_read_no_further_than_its_bound(tmp_path: Path) -> None:
    file = tmp_path / "large.yaml"
    with file.open("wb") as empty:
        empty.truncate(1 << 40)
    with pytest.raises(ConfigError) as caught:
        load(file)
    assert str(caught.value) == f"{file}: too large; expected at most 1048576 bytes"


def test_what_is_no_file_is_not_waited_at() -> None:
    with pytest.raises(ConfigError) as caught:
        load(Path("/dev/zero"))
    assert str(caught.value) == "/dev/zero: cannot be read (not a regular file); expected a YAML file"


def test_a_file_may_be_as_large_as_the_bound() -> None:
    assert parse(EXAMPLE + b"#" * (MAX_FILE_BYTES - len(EXAMPLE)), "x")


@pytest.mark.parametrize("text", [b"", b"# only a comment\n", b"- a\n", b"just text", b"5"])
def test_what_is_no_mapping_is_told_the_keys(text: bytes) -> None:
    assert faults(text) == [f"expected a mapping with the keys {', '.join(Config.model_fields)}"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"pools: [", "1:9: not valid YAML: while parsing a flow node: expected the node content"),
        (b"admin: {}\nadmin: {}\n", "2:1: not valid YAML: key 'admin' is given twice"),
        (b"a: &a [1]\nb: *a\n", "2:4: not valid YAML: aliases are not supported"),
        (b"a: \xff", "1:4: not valid YAML: expected UTF-8 text"),
        (b"[" * 5000, "1:22: not valid YAML: nested deeper than 20 levels"),
    ],
)
def test_what_is_not_yaml_is_shown_where_it_stands(text: bytes, said: str) -> None:
    (line,) = faults(text)
    assert line.startswith(said)


# Anything at all

LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.just("10.0.0.1:80")
KEYS = st.sampled_from([*EVERY_KEY, *EVERY_KEY["pools"][0], "address", "port", "weight"]) | st.text(max_size=5)
ANYTHING = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4), max_leaves=15
)
PLACES = [
    *[f"{section}.{key}" for section, keys in EVERY_KEY.items() if isinstance(keys, dict) for key in keys],
    *[f"{section}.0.{key}" for section in ("pools", "routes") for key in EVERY_KEY[section][0]],
    *[f"routes.0.headers.0.{key}" for key in EVERY_KEY["routes"][0]["headers"][0]],
    *["pools", "pools.1", "pools.0.endpoints.0", "pools.0.endpoints.0.address", "pools.0.endpoints.0.weight"],
]


def check_only_config_errors(text: bytes) -> None:
    try:
        parse(text, "tidegate.yaml")
    except ConfigError as error:
        lines = str(error).split("\n")
    else:
        lines = []
    assert all(line.startswith("tidegate.yaml:") for line in lines)


@settings(max_examples=100, deadline=None)
@given(st.dictionaries(KEYS, ANYTHING, max_size=6))
def test_any_mapping_is_taken_or_refused_in_words(data: Any) -> None:
    check_only_config_errors(yaml.safe_dump(data).encode("utf-8", "surrogatepass"))


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(PLACES), ANYTHING)
def test_any_value_at_any_key_is_taken_or_refused_in_words(path: str, value: Any) -> None:
    check_only_config_errors(yaml.safe_dump(changed(path, value)).encode("utf-8", "surrogatepass"))


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=200) | st.text(max_size=100).map(lambda text: text.encode()))
def test_any_bytes_are_refused_in_words(text: bytes) -> None:
    check_only_config_errors(text)
