"""The checks as a part of the control plane: whom they ask, what they know beside that, and what is shown of it."""

import asyncio
import json
from typing import Any

import pytest

from tests.configurations import parsed
from tests.engines.engine_server import answering, serving
from tests.fleet.declare import A, B, reservation
from tests.telemetry.entries import entry
from tidegate.config import Config
from tidegate.discovery.static import declared
from tidegate.fleet.events import EvidenceReported, FleetEvent, LoadReported, RequestReserved
from tidegate.fleet.evidence import Verdict
from tidegate.fleet.load import EngineReport
from tidegate.fleet.state import Fleet
from tidegate.runtime import checks as module
from tidegate.runtime.checks import Checks, checked
from tidegate.runtime.part import Surroundings
from tidegate.telemetry.metrics import Metrics
from tidegate.telemetry.record import parse


def configured(*addresses: str, **pool: Any) -> Config:
    endpoints = [{"address": address} for address in addresses]
    return parsed({"pools": [{"name": "default", "endpoints": endpoints, **pool}]})


class Plane:
    """What a part is given, and what it says."""

    def __init__(self, config: Config) -> None:
        self.config, self.fleet, self.said = config, Fleet(45.0), list[FleetEvent]()
        self.metrics = Metrics(tuple, int)
        self.fleet.apply(declared(config), 0.0)
        self.checks = Checks(Surroundings(self.fleet, self.said.append, self.metrics, config, readjust=lambda *_: None))
        self.checks.follow(config, declared(config))

    def page(self) -> list[dict[str, Any]]:
        page = self.checks.pages()["/checks"].content({})
        found: list[dict[str, Any]] = json.loads(json.dumps(page, allow_nan=False))["checks"]
        return found


def test_every_endpoint_is_asked_by_the_checks_of_its_pool() -> None:
    config = configured(A, B, models=["llama", "llama-*"], engine="sglang", checks=[{"name": "tcp"}, {"name": "http"}])
    found = dict(checked(config, declared(config)))
    assert sorted(found) == [(A, "http"), (A, "tcp"), (B, "http"), (B, "tcp")]
    subject = found[A, "http"]
    assert (subject.pool, subject.address, subject.engine, subject.models) == ("default", A, "sglang", ("llama",))


def test_where_nothing_is_said_only_what_costs_nothing_is_done() -> None:
    config = configured(A)
    assert [name for _, name in dict(checked(config, declared(config)))] == ["progress"]


async def test_what_is_found_is_said_to_the_fleet_and_shown() -> None:
    http = {"name": "http", "interval_seconds": 0.05, "fall": 1}
    async with serving(answering("no", status="503 Service Unavailable")) as server:
        plane = Plane(configured(server.address, checks=[http]))
        running = asyncio.create_task(plane.checks.run())
        async with asyncio.timeout(10):
            while not plane.said:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        running.cancel()
        await asyncio.wait([running])
    (said, *_) = plane.said
    assert isinstance(said, EvidenceReported)
    assert (said.address, said.evidence.source) == (server.address, "http")
    assert (said.evidence.verdict, said.evidence.reasons) == (Verdict.FAILED, ("http_status",))
    shown = {"check": "http", "verdict": "failed", "finding": "failed", "reason": "status", "detail": "status 503"}
    assert plane.page() == [{"pool": "default", "address": server.address, **shown}]
    page = plane.metrics.render().decode()
    assert 'tidegate_engine_checks_total{check="http",finding="failed"} ' in page
    assert 'tidegate_engine_check_duration_seconds_count{check="http"} ' in page


async def test_requests_that_stand_still_by_the_engines_own_count_fail_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """F28 and a dead core whose frontend goes on sending comments: whatever its pages say."""
    monkeypatch.setattr(module, "LOOK_SECONDS", 0.01)
    now = asyncio.get_running_loop().time
    plane = Plane(configured(A, checks=[{"name": "progress", "interval_seconds": 0.05, "still_seconds": 1}]))
    plane.fleet.apply(RequestReserved(reservation("r1", prompt=10)), now())
    running = asyncio.create_task(plane.checks.run())
    async with asyncio.timeout(10):
        while not plane.said:
            plane.fleet.apply(LoadReported(A, EngineReport(1.0, 0.0, generation_tokens_total=7.0)), now())
            await asyncio.sleep(0.05)
    (said, *_) = plane.said
    assert isinstance(said, EvidenceReported)
    assert (said.evidence.verdict, said.evidence.reasons) == (Verdict.FAILED, ("no_progress",))
    # A request that is served there is progress, whatever is counted.
    plane.said.clear()
    record = parse(entry())._replace(served=A)
    async with asyncio.timeout(10):
        while not plane.said or plane.said[-1].evidence.verdict is not Verdict.SOUND:  # type: ignore[union-attr]
            plane.checks.ended(record)
            await asyncio.sleep(0.02)
    running.cancel()
    await asyncio.wait([running])


async def test_metrics_that_do_not_come_are_no_standing_still(monkeypatch: pytest.MonkeyPatch) -> None:
    """F29: a page that trickles leaves the load unknown; it is neither idle, nor dead."""
    monkeypatch.setattr(module, "LOOK_SECONDS", 0.01)
    plane = Plane(configured(A, checks=[{"name": "progress", "interval_seconds": 0.05, "still_seconds": 1}]))
    plane.fleet.apply(RequestReserved(reservation("r1", prompt=10)), asyncio.get_running_loop().time())
    running = asyncio.create_task(plane.checks.run())
    await asyncio.sleep(1.5)
    running.cancel()
    await asyncio.wait([running])
    assert plane.said == []
    assert [one["finding"] for one in plane.page()] == ["unknown"]


def test_a_configuration_that_changes_changes_whom_it_asks() -> None:
    plane = Plane(configured(A, B))
    assert [one["address"] for one in plane.page()] == [A, B]
    other = configured(B, checks=[])
    plane.checks.follow(other, declared(other))
    assert plane.page() == []
