"""The source ``file``."""

import contextlib
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.discovery.told import telling
from tidegate.config_discovery import FileSource
from tidegate.discovery import file
from tidegate.discovery.contract import Failed, Found, Reset
from tidegate.discovery.file import File, Unusable, Watched, parse
from tidegate.fleet.endpoint import EndpointSpec

YAML = b"""
endpoints:
  - {address: "10.0.0.1:8000", weight: 2, role: decode, gpu: h100, engine: sglang}
  - {address: "[FD00::0:1]:8000"}
"""


@pytest.mark.parametrize(
    "text", [YAML, YAML.replace(b"endpoints:", b""), b'{"endpoints": [{"address": "10.0.0.1:8000"}]}']
)
def test_yaml_and_json_are_read_with_or_without_the_key(text: bytes) -> None:
    first = next(iter(parse(text).found.values()))
    assert first.endpoint.address == "10.0.0.1:8000"


def test_an_endpoint_says_all_that_one_in_the_configuration_says() -> None:
    assert parse(YAML) == Reset(
        {
            "10.0.0.1:8000": Found(EndpointSpec("10.0.0.1:8000", 2, "decode", gpu="h100"), "sglang"),
            "[fd00::1]:8000": Found(EndpointSpec("[fd00::1]:8000")),
        }
    )


def test_an_empty_list_says_that_there_is_nobody_and_an_empty_file_says_nothing() -> None:
    assert parse(b"[]") == Reset({})
    with pytest.raises(Unusable, match="for none"):
        parse(b"")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"- {address: nowhere}", "expected ip:port"),
        (b"- {address: '10.0.0.1:1', weight: -1}", "expected at least 1"),
        (b"- {address: '10.0.0.1:1', port: 1}", "unknown key"),
        (b"- {address: '10.0.0.1:1'}\n- {address: '10.0.0.1:1'}", "given twice"),
        (b"- {address: '10.0.0.1:1', address: '10.0.0.1:1'}", "given twice"),
        (b"- &a {address: '10.0.0.1:1'}\n- *a", "aliases are not supported"),
        (b"!!python/object/apply:os.system ['true']", "tags are not supported"),
        (b"- {address: '10.0.0.1:1'", "not valid YAML"),
        (b"7", "expected a mapping"),
        (b"\xff", "UTF-8"),
    ],
)
def test_a_text_that_says_something_else_is_refused_as_a_whole(text: bytes, said: str) -> None:
    with pytest.raises(Unusable, match=said) as caught:
        parse(text)
    assert "\n" not in str(caught.value)


def test_a_text_beyond_the_bound_is_refused() -> None:
    with pytest.raises(Unusable, match="too large"):
        parse(b"#" * 1_048_577)


@given(
    st.binary(max_size=200) | st.recursive(st.text() | st.integers(), st.lists).map(lambda d: json.dumps(d).encode())
)
def test_any_text_is_read_or_refused(text: bytes) -> None:
    with contextlib.suppress(Unusable):
        parse(text)


def test_a_change_is_judged_once_it_stands_still() -> None:
    watched = Watched()
    assert watched.look(b"[]", again=False) == Reset({})
    assert watched.look(b"- {addr", again=False) is None
    assert watched.look(YAML, again=False) is None
    assert watched.look(YAML, again=False) == parse(YAML)
    assert watched.look(YAML, again=False) is None
    assert watched.look(YAML, again=True) == parse(YAML)
    assert watched.look(b"7", again=False) is None
    assert isinstance(watched.look(b"7", again=False), Failed)


async def test_a_file_is_followed_through_all_that_befalls_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file, "POLL_SECONDS", 0.02)
    path = tmp_path / "endpoints.yaml"
    async with telling(File(FileSource(path=str(path)))) as told:
        await told.until(lambda: told.failures == ["cannot be read (No such file or directory)"])
        path.write_bytes(YAML)
        await told.until(lambda: told.addresses == {"10.0.0.1:8000", "[fd00::1]:8000"})
        path.write_bytes(b"- {address: ")
        await told.until(lambda: len(told.failures) == 2)
        path.unlink()
        await told.until(lambda: len(told.failures) == 3)
        assert len(told.addresses) == 2
        new = tmp_path / "new"
        new.write_bytes(b'- {address: "10.0.0.3:1"}')
        path.symlink_to(new)
        await told.until(lambda: told.addresses == {"10.0.0.3:1"})
        passes = told.passes
        told.asked.set()
        await told.until(lambda: told.passes == passes + 1)
    assert len(told.failures) == 3, "each is said once"
