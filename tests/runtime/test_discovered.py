"""Sources that are followed, and the pools that come of them."""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from tests.configurations import parsed
from tests.discovery.told import found
from tidegate.config import Config
from tidegate.config_discovery import Discovery
from tidegate.discovery.contract import Backoff, Failed, Found, Reset, Tell
from tidegate.fleet.endpoint import EndpointSpec
from tidegate.runtime import discovered
from tidegate.runtime.discovered import Discovered
from tidegate.telemetry.discovery import DiscoveryCollector, describe


class Scripted:
    """A source that says what a test says."""

    def __init__(self) -> None:
        self.tell: Tell | None = None
        self.asked: asyncio.Event | None = None
        self.runs = 0

    async def run(self, tell: Tell, asked: asyncio.Event) -> None:
        self.tell, self.asked = tell, asked
        self.runs += 1
        await asyncio.get_running_loop().create_future()

    def says(self, *addresses: str) -> None:
        assert self.tell is not None
        self.tell(Reset({address: found(address) for address in addresses}))


class Stage:
    def __init__(self) -> None:
        self.changes = 0
        self.sources: dict[str, Scripted] = {}
        self.tested = Discovered(self._changed, make=self._make)

    def _changed(self) -> None:
        self.changes += 1

    def _make(self, settings: Discovery, _: random.Random) -> Scripted:
        assert settings.file is not None
        return self.sources.setdefault(settings.file.path, Scripted())

    def found(self, config: Config) -> dict[str, list[str]]:
        return {
            pool.name: [endpoint.address for endpoint in pool.endpoints] for pool in self.tested.declared(config).pools
        }


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    made = Stage()
    async with made.tested.running():
        yield made


def config(*names: str, listed: str = "10.9.9.9:1", **more: Any) -> Config:
    pools: list[dict[str, Any]] = [
        {"name": name, "models": [name], "discovery": {"file": {"path": f"/{name}"}, **more}} for name in names
    ]
    fixed = {"name": "listed", "models": ["listed"], "endpoints": [{"address": listed}]}
    return parsed({"listener": {"address": "10.0.0.99", "port": 80}, "pools": [*pools, fixed]})


async def until(condition: Any) -> None:
    async with asyncio.timeout(5):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


def whole(stage: Stage) -> bool:
    return stage.tested.is_whole


async def test_without_sources_everything_is_known_at_once() -> None:
    stage = Stage()
    stage.tested.follow(config())
    assert whole(stage)
    assert stage.found(config()) == {"listed": ["10.9.9.9:1"]}


async def test_what_is_found_joins_what_is_listed(stage: Stage) -> None:
    both = parsed(
        {
            "pools": [
                {
                    "name": "a",
                    "endpoints": [{"address": "10.0.0.1:1", "weight": 3}],
                    "discovery": {"file": {"path": "/a"}},
                }
            ]
        }
    )
    stage.tested.follow(both)
    await until(lambda: "/a" in stage.sources)
    assert stage.found(both) == {"a": ["10.0.0.1:1"]}
    assert list(stage.tested.unready()) == ["the file source of pool a has not been read yet"]
    assert not whole(stage)
    stage.sources["/a"].says("10.0.0.1:1", "10.0.0.2:1")
    assert whole(stage)
    assert stage.changes == 1
    (pool,) = stage.tested.declared(both).pools
    assert pool.endpoints == (EndpointSpec("10.0.0.1:1", 3), EndpointSpec("10.0.0.2:1"))


async def test_nothing_is_whole_before_the_last_source_was_read(stage: Stage) -> None:
    wanted = config("a", "b")
    stage.tested.follow(wanted)
    await until(lambda: len(stage.sources) == 2)
    stage.sources["/a"].says("10.0.0.1:1")
    assert not whole(stage)
    stage.sources["/b"].says()
    assert whole(stage)
    await asyncio.wait_for(stage.tested.whole(), 1)


async def test_many_changes_are_declared_together(stage: Stage) -> None:
    """A hundred changes are a handful of declarations, and the last one is in them."""
    wanted = config("a")
    stage.tested.follow(wanted)
    await until(lambda: "/a" in stage.sources)
    for number in range(100):
        stage.sources["/a"].says("10.0.0.200:1", f"10.0.0.{number}:1")
        await asyncio.sleep(0.005)
    await until(lambda: stage.found(wanted)["a"] == ["10.0.0.200:1", "10.0.0.99:1"])
    assert 2 <= stage.changes <= 25


async def test_an_address_belongs_to_one_pool_and_the_listener_to_none(stage: Stage) -> None:
    wanted = config("a", "b", listed="10.0.0.3:1")
    stage.tested.follow(wanted)
    await until(lambda: len(stage.sources) == 2)
    stage.sources["/a"].says("10.0.0.1:1", "10.0.0.3:1", "10.0.0.99:80")
    stage.sources["/b"].says("10.0.0.1:1", "10.0.0.2:1")
    assert stage.found(wanted) == {"a": ["10.0.0.1:1"], "b": ["10.0.0.2:1"], "listed": ["10.0.0.3:1"]}


async def test_a_source_that_is_described_otherwise_goes_on_with_what_was_known(stage: Stage) -> None:
    stage.tested.follow(config("a"))
    await until(lambda: "/a" in stage.sources)
    stage.sources["/a"].says("10.0.0.1:1")
    moved = parsed({"pools": [{"name": "a", "discovery": {"file": {"path": "/moved"}}}]})
    stage.tested.follow(moved)
    await until(lambda: "/moved" in stage.sources)
    assert stage.found(moved) == {"a": ["10.0.0.1:1"]}
    stage.sources["/a"].says("10.0.0.66:1")
    assert stage.found(moved) == {"a": ["10.0.0.1:1"]}, "the old one has no say any more"
    stage.sources["/moved"].says("10.0.0.2:1")
    assert stage.found(moved) == {"a": ["10.0.0.2:1"]}


async def test_a_pool_that_is_gone_is_no_longer_followed_and_one_that_stays_is_not_disturbed(stage: Stage) -> None:
    stage.tested.follow(config("a", "b"))
    await until(lambda: len(stage.sources) == 2)
    stage.tested.follow(config("a"))
    assert [report.pool for report in stage.tested.reports()] == ["a"]
    await asyncio.sleep(0.05)
    assert stage.sources["/a"].runs == 1


async def test_a_source_in_doubt_is_asked_and_not_without_a_pause(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(discovered, "ASK_EVERY_SECONDS", 0.1)
    wanted = config("a", hold_seconds=0.2)
    stage.tested.follow(wanted)
    await until(lambda: "/a" in stage.sources)
    source = stage.sources["/a"]
    source.says("10.0.0.1:1")
    source.says()
    assert source.asked is not None
    await until(source.asked.is_set)
    source.asked.clear()
    assert stage.found(wanted)["a"] == ["10.0.0.1:1"]
    await until(source.asked.is_set)
    source.says()
    await until(lambda: stage.found(wanted)["a"] == [])


async def test_a_fault_in_a_source_is_logged_and_it_begins_anew(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(Backoff, "failed", lambda _: 0.01)

    async def run(self: Scripted, tell: Tell, asked: asyncio.Event) -> None:
        del tell, asked
        self.runs += 1
        raise ZeroDivisionError

    monkeypatch.setattr(Scripted, "run", run)
    stage.tested.follow(config("a"))
    await until(lambda: "/a" in stage.sources and stage.sources["/a"].runs > 2)
    assert "a source went wrong" in caplog.text


async def test_what_the_block_raises_comes_out_as_it_was() -> None:
    with pytest.raises(KeyError):
        async with Stage().tested.running():
            raise KeyError


async def test_engines_are_those_that_labels_say_else_the_pools(stage: Stage) -> None:
    wanted = config("a")
    stage.tested.follow(wanted)
    await until(lambda: "/a" in stage.sources)
    tell = stage.sources["/a"].tell
    assert tell is not None
    tell(Reset({"x": Found(EndpointSpec("10.0.0.1:1"), "sglang"), "y": found("10.0.0.2:1")}))
    assert stage.tested.engines(stage.tested.declared(wanted)) == {
        "10.0.0.1:1": "sglang",
        "10.0.0.2:1": "vllm",
        "10.9.9.9:1": "vllm",
    }


async def test_metrics_say_how_each_source_does(stage: Stage) -> None:
    stage.tested.follow(config("a"))
    await until(lambda: "/a" in stage.sources)
    tell = stage.sources["/a"].tell
    assert tell is not None

    def samples() -> dict[str, float]:
        return {
            sample.name.removeprefix("tidegate_discovery_") + sample.labels.get("stage", ""): sample.value
            for family in DiscoveryCollector(stage.tested.reports).collect()
            for sample in family.samples
        }

    before = samples()
    assert before["stagewaiting"] == 1
    assert "age_seconds" not in before
    stage.sources["/a"].says("10.0.0.1:1", "127.0.0.1:1")
    tell(Failed("HTTP 500"))
    after = samples()
    assert 0 <= after.pop("age_seconds") < 5
    stages = {"stagewaiting": 0, "stagegood": 0, "stagefailing": 1, "stageheld": 0}
    assert after == {"endpoints": 1, "refused_endpoints": 1, "errors_total": 1, **stages}


async def test_waiting_for_the_first_passes_has_an_end(stage: Stage) -> None:
    stage.tested.follow(config("a"))
    await asyncio.wait_for(stage.tested.synced(0.05), 5)
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(stage.tested.whole(), 0.01)
    assert not whole(stage)


@pytest.mark.parametrize(("allow", "reason"), [((), "loopback"), (("10.0.0.0/8",), "not in a network")])
async def test_what_is_left_out_is_named_in_the_log_once_and_on_the_page(
    stage: Stage, caplog: pytest.LogCaptureFixture, allow: tuple[str, ...], reason: str
) -> None:
    stage.tested.follow(config("a", allow=[*allow]))
    await until(lambda: "/a" in stage.sources)
    for _ in range(2):
        stage.sources["/a"].says("127.0.0.1:1", "10.0.0.1:1", "127.0.0.1:2")
        stage.tested._settle()
    lines = [record for record in caplog.records if "left out" in record.getMessage()]
    assert [record.levelname for record in lines] == ["WARNING"]
    fields = vars(lines[0])["fields"]
    assert (fields["pool"], fields["source"], fields["count"]) == ("a", "file", 2)
    assert fields["first"] == "127.0.0.1:1, 127.0.0.1:2"
    assert reason in fields["reason"]
    (said,) = describe(stage.tested.reports())
    assert [one["address"] for one in cast("list[dict[str, str]]", said["left_out"])] == ["127.0.0.1:1", "127.0.0.1:2"]
