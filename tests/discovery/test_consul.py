"""The source ``consul``, against a scripted stand-in for its HTTP API."""

import json
import random
from collections.abc import AsyncIterator
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.discovery.consul_api import ConsulApi, instance
from tests.discovery.told import telling
from tidegate.config_discovery import ConsulSource
from tidegate.discovery import consul
from tidegate.discovery.consul import Consul, next_index, parse


@pytest.fixture
async def api() -> AsyncIterator[ConsulApi]:
    tested = ConsulApi()
    async with tested.running():
        yield tested


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consul, "SPACING_SECONDS", 0.05)


def source(api: ConsulApi, **more: object) -> Consul:
    settings = ConsulSource.model_validate({"url": api.url, "service": "llm", **more})
    return Consul(settings, random.Random(1))


@pytest.mark.usefixtures("hurried")
async def test_instances_come_and_go_by_blocking_queries(api: ConsulApi) -> None:
    api.set(7, instance(1), instance(2))
    async with telling(source(api, tag="gpu", datacenter="dc2", namespace="ml")) as told:
        await told.until(lambda: told.addresses == {"10.0.0.1:8000", "10.0.0.2:8000"})
        await told.until(lambda: len(api.asked) == 2)
        api.set(8, instance(2), instance(3))
        await told.until(lambda: told.addresses == {"10.0.0.2:8000", "10.0.0.3:8000"})
    assert api.asked[0] == {"service": "llm", "tag": "gpu", "dc": "dc2", "ns": "ml"}
    assert api.asked[1]["index"] == "7"
    assert 44_000 <= int(api.asked[1]["wait"].removesuffix("ms")) <= 60_000


@pytest.mark.usefixtures("hurried")
async def test_an_index_that_goes_backwards_or_to_nothing_begins_anew(api: ConsulApi) -> None:
    """3000, then 12, then 0: each time the next question asks for what there is now, and waits for nothing."""
    api.blocks = False
    api.set(3000, instance(1))
    async with telling(source(api)) as told:
        await told.until(lambda: any(one.get("index") == "3000" for one in api.asked))
        api.set(12, instance(2))
        await told.until(lambda: told.addresses == {"10.0.0.2:8000"})
        await told.until(lambda: api.asked[-1].get("index") == "12")
        before = len(api.asked)
        api.set(0, instance(3))
        await told.until(lambda: len(api.asked) > before + 2)
        assert "index" not in api.asked[-1]
        assert told.addresses == {"10.0.0.3:8000"}
    after = api.asked[[one.get("index") for one in api.asked].index("3000") :]
    assert "index" in after[0]
    assert any("index" not in one for one in after)


async def test_questions_that_do_not_block_are_spaced(api: ConsulApi) -> None:
    """A query for a service that is not there may come back at once, for ever."""
    api.blocks = False
    async with telling(source(api)) as told:
        await told.until(lambda: told.passes >= 3)
    assert min(later - earlier for earlier, later in pairwise(api.times)) > 0.85


@pytest.mark.usefixtures("hurried")
@pytest.mark.parametrize(
    ("status", "text", "reason"),
    [(500, "[]", "HTTP 500"), (200, "no leader", "not JSON as expected"), (200, "{}", "not JSON as expected")],
)
async def test_a_failure_takes_nothing_away(api: ConsulApi, status: int, text: str, reason: str) -> None:
    api.set(7, instance(1))
    async with telling(source(api)) as told:
        await told.until(lambda: told.passes > 0 and len(api.asked) == 2)
        api.status, api.instances, api.index = status, text, 8
        api.wake()
        await told.until(lambda: bool(told.failures))
        assert told.failures[0] == reason
        assert told.addresses == {"10.0.0.1:8000"}


@pytest.mark.usefixtures("hurried")
async def test_a_silent_server_is_given_up(api: ConsulApi, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consul, "ANSWER_SECONDS", 0.2)
    api.silent = True
    async with telling(source(api)) as told:
        await told.until(lambda: told.failures == ["no answer in time"])


async def test_a_server_that_is_not_there_is_a_failure() -> None:
    async with telling(source(ConsulApi())) as told:
        await told.until(lambda: bool(told.failures))
    assert told.failures[0].startswith("cannot connect")


@pytest.mark.usefixtures("hurried")
async def test_the_token_is_read_anew_and_never_told(api: ConsulApi, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("old\n")
    api.token = "s3cret"
    api.set(7, instance(1))
    async with telling(source(api, token_file=str(file))) as told:
        await told.until(lambda: told.failures == ["HTTP 403"])
        file.write_text("s3cret\n")
        await told.until(lambda: told.addresses == {"10.0.0.1:8000"})
    assert "s3cret" not in repr(told.news)


@pytest.mark.usefixtures("hurried")
async def test_a_pass_that_is_asked_for_interrupts_a_question_that_waits(api: ConsulApi) -> None:
    api.set(7, instance(1))
    async with telling(source(api)) as told:
        await told.until(lambda: len(api.asked) == 2)
        told.asked.set()
        await told.until(lambda: told.passes == 2)
        assert "index" not in api.asked[2]
        await told.until(lambda: len(api.asked) == 4)
        assert api.asked[3]["index"] == "7"


def places(text: str, health: str = "passing") -> set[str]:
    return {one.endpoint.address for one in parse(text.encode(), health).found.values()}


def test_the_worst_check_counts() -> None:
    text = json.dumps(
        [instance(1), instance(2, "passing", "warning"), instance(3, "warning", "critical"), instance(4, "maintenance")]
    )
    assert places(text) == {"10.0.0.1:8000"}
    assert places(text, "warning") == {"10.0.0.1:8000", "10.0.0.2:8000"}
    assert len(places(text, "any")) == 4


def test_the_services_own_address_goes_before_its_nodes() -> None:
    assert places(json.dumps([instance(1, address="10.9.9.9"), instance(2, address="fd00::2")])) == {
        "10.9.9.9:8000",
        "[fd00::2]:8000",
    }


def test_an_instance_that_cannot_be_read_costs_the_others_nothing() -> None:
    broken = [
        7,
        {},
        {"Node": {}, "Service": {"ID": "x", "Port": "y"}},
        instance(5, address="a.host"),
        instance(6, Port=0),
    ]
    assert places(json.dumps([*broken, instance(1)])) == {"10.0.0.1:8000"}


def test_metadata_and_weights_describe_an_instance() -> None:
    meta = {"tidegate-role": "decode", "tidegate-gpu": "NVIDIA-H100-80GB-HBM3", "tidegate-engine": "sglang"}
    weights = {"Passing": 10, "Warning": 2}
    text = json.dumps([instance(1, Meta=meta, Weights=weights), instance(2, "warning", Weights=weights)])
    first, second = parse(text.encode(), "warning").found.values()
    assert (first.endpoint.role, first.endpoint.gpu, first.engine, first.endpoint.weight) == (
        "decode",
        "h100",
        "sglang",
        10,
    )
    assert second.endpoint.weight == 2


@pytest.mark.parametrize(
    ("before", "said", "expected"),
    [
        *((0, "7", 7), (7, "8", 8), (7, "7", 7), (3000, "12", 0), (5, "0", 0), (5, None, 0), (5, "-1", 0)),
        *((5, "x", 0), (5, "9" * 30, 0)),
    ],
)
def test_the_index_follows_consuls_rules(before: int, said: str | None, expected: int) -> None:
    assert next_index(before, said) == expected


KEYS = st.sampled_from(["Node", "Service", "ID", "Port", "Checks", "Address"])
ANSWERS = st.recursive(
    st.none() | st.text() | st.integers(), lambda inner: st.lists(inner) | st.dictionaries(KEYS, inner)
)


@given(st.binary(max_size=100) | ANSWERS.map(lambda data: json.dumps(data).encode()))
def test_any_answer_is_read_or_refused(text: bytes) -> None:
    try:
        parse(text, "any")
    except (msgspec.DecodeError, UnicodeDecodeError):
        return
