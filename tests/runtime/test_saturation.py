"""The part that says how full the pools are."""

from typing import TYPE_CHECKING, Any, cast

import pytest

from tests.configurations import parsed
from tidegate.config import Config
from tidegate.discovery import static
from tidegate.fleet.state import Fleet
from tidegate.runtime.part import Surroundings
from tidegate.runtime.saturation import SaturationGauges
from tidegate.scheduling.line import Standing
from tidegate.scheduling.saturation import Backlog
from tidegate.telemetry.metrics import Metrics

if TYPE_CHECKING:
    from tidegate.runtime.waiting_room import WaitingRoom

ADDRESS = "10.0.0.1:8000"


class Room:
    """A waiting room in which so much waits for each pool, half of it batch work."""

    def __init__(self, backlog: Backlog) -> None:
        self._backlog = backlog

    def standings(self) -> list[Standing]:
        requests, tokens = self._backlog.requests // 2, self._backlog.tokens // 2
        return [
            Standing(pool, batch, requests, tokens, 0, 0.0) for pool in ("awake", "asleep") for batch in (False, True)
        ]

    def rate(self, pool: str) -> float | None:
        assert pool
        return self._backlog.rate


def config(objective: dict[str, Any] | None = None) -> Config:
    """Return one with a pool of one endpoint and a pool that is scaled to none."""
    awake = {"name": "awake", "models": ["a"], "endpoints": [{"address": ADDRESS, "max_running": 4}]}
    asleep = {"name": "asleep", "models": ["b"], "discovery": {"file": {"path": "/nowhere.yaml"}}}
    return parsed({"pools": [{**awake, "objective": objective or {}}, asleep]})


def watched(config: Config, waiting: Backlog) -> tuple[Metrics, SaturationGauges]:
    fleet = Fleet(45.0)
    metrics = Metrics(lambda: fleet.views(0.0), lambda: 0)
    room = cast("WaitingRoom", Room(waiting))
    part = SaturationGauges(Surroundings(fleet, lambda fact: None, metrics, config, lambda: None, room))
    declared = static.declared(config)
    fleet.apply(declared, 0.0)
    metrics.configure(declared.pools)
    part.follow(config, declared)
    return metrics, part


def test_a_pool_that_is_scaled_to_none_can_be_woken_by_what_is_exported() -> None:
    metrics, _ = watched(config(), Backlog(2, 1_000))
    page = metrics.render().decode().splitlines()
    assert 'tidegate_incoming_requests_total{pool="asleep"} 0.0' in page
    assert 'tidegate_pool_endpoints{pool="asleep"} 0.0' in page
    assert 'tidegate_pool_saturation{part="total",pool="asleep"} 0.4' in page


def test_a_process_that_does_not_decide_itself_knows_of_no_queue() -> None:
    fleet = Fleet(45.0)
    metrics = Metrics(lambda: fleet.views(0.0), lambda: 0)
    part = SaturationGauges(Surroundings(fleet, lambda fact: None, metrics, config(), lambda: None))
    fleet.apply(static.declared(config()), 0.0)
    assert part.now()["awake"].queue == 0.0


def test_the_objective_of_the_configuration_is_what_is_measured_by() -> None:
    backlog = Backlog(8, 8_000, rate=1_000.0)
    _, part = watched(config(), backlog)
    assert part.now()["awake"].ttft is None
    _, part = watched(config({"ttft_seconds": 4, "waiting": 16}), backlog)
    found = part.now()["awake"]
    assert found.queue == 0.5
    assert found.ttft == pytest.approx(2.0, rel=0.1)
    assert part.pages()["/saturation"].content({})["pools"] == {
        name: {"total": one.total, **one._asdict()} for name, one in part.now().items()
    }


def test_an_objective_has_the_work_of_endpoints_reckoned_under_every_policy() -> None:
    pool = {"name": "p", "policy": "round_robin", "endpoints": [{"address": ADDRESS}]}
    assert not static.declared(parsed({"pools": [pool]})).pools[0].reckons
    with_objective = parsed({"pools": [{**pool, "objective": {"ttft_seconds": 1}}]})
    assert static.declared(with_objective).pools[0].reckons
