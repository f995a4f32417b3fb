"""Requests under which engines die: seen in the ends of requests, and kept from the engines that are left."""

import time
from typing import Any

import pytest

from tests.configurations import parsed
from tests.fleet.declare import A, B, C, fleet_of, pool, reservation
from tests.scheduling.ask import Draws, ask, dispatcher
from tests.telemetry.entries import DECISION, entry
from tidegate.config import Config
from tidegate.fleet.events import FleetEvent, PoolsDeclared, RequestEnded, RequestQuarantined, RequestReserved
from tidegate.fleet.evidence import Ending
from tidegate.fleet.state import Fleet
from tidegate.runtime.part import Surroundings
from tidegate.runtime.quarantines import Quarantines
from tidegate.scheduling.dispatch import Decision, Refusal, RefusalReason
from tidegate.telemetry.endings import Attempt
from tidegate.telemetry.metrics import Metrics
from tidegate.telemetry.record import RequestRecord, parse


def config(**limits: float) -> Config:
    return parsed({"pools": [{"name": "default", "endpoints": [{"address": A}]}], "limits": limits})


class Plane:
    """The part, over a fleet of three."""

    def __init__(self, **limits: float) -> None:
        self.fleet = fleet_of(pool(A, B, C))
        self.metrics = Metrics(lambda: (), lambda: 0)
        self.told: list[FleetEvent] = []
        self.part = Quarantines(Surroundings(self.fleet, self.apply, self.metrics, config(**limits), lambda: None))
        self.number = 0

    def apply(self, event: FleetEvent) -> None:
        self.told.append(event)
        self.fleet.apply(event, time.monotonic())

    def end(self, fingerprint: int, *tried: tuple[str, Ending], begun_for: float | None = None) -> None:
        """Have a request end that was ``tried`` so; its answer had begun ``begun_for`` seconds ago."""
        self.number += 1
        name = f"r{self.number}"
        reserved = reservation(name)._replace(fingerprint=fingerprint)
        self.fleet.apply(RequestReserved(reserved), 0.0)
        self.part.ended(record(name, tried, begun_for))
        self.fleet.apply(RequestEnded(name), 0.0)

    def sample(self, name: str) -> float | None:
        return self.metrics.registry.get_sample_value(name)


def record(name: str, tried: tuple[tuple[str, Ending], ...], begun_for: float | None) -> RequestRecord:
    ttft: dict[str, Any] = {} if begun_for is None else {"ttft_us": str(round((2.5 - begun_for) * 1e6))}
    made = parse(entry(decision={**DECISION, "reservation": name}, tags=ttft))
    return made._replace(tried=tuple(Attempt(*one) for one in tried))


def test_a_request_under_which_two_engines_died_is_held(caplog: pytest.LogCaptureFixture) -> None:
    plane = Plane(quarantine_seconds=60.0)
    plane.end(7, (A, Ending.RESET))
    assert plane.told == []
    plane.end(7, (B, Ending.ENGINE_DEAD))
    assert plane.told == [RequestQuarantined(7, 60.0)]
    assert (plane.sample("tidegate_quarantines_total"), plane.sample("tidegate_quarantined_requests")) == (1, 1)
    assert f"endpoints={B}" in caplog.text or B in str([record.__dict__ for record in caplog.records])


def test_both_may_die_under_its_attempts() -> None:
    plane = Plane()
    plane.end(7, (A, Ending.RESET), (B, Ending.RESET))
    assert plane.told == [RequestQuarantined(7, 600.0)]


@pytest.mark.parametrize(
    "other",
    [
        ((B, Ending.SERVED),),
        ((B, Ending.RESET), (C, Ending.SERVED)),
    ],
)
def test_whoever_is_served_is_beyond_suspicion(other: tuple[tuple[str, Ending], ...]) -> None:
    plane = Plane()
    plane.end(7, (A, Ending.RESET))
    plane.end(7, *other)
    plane.end(7, (A, Ending.RESET))
    assert plane.told == []


@pytest.mark.parametrize(
    "ending",
    [Ending.UNCONNECTED, Ending.BUSY, Ending.NEUTRAL, Ending.SERVER_ERROR, Ending.OUT_OF_MEMORY, Ending.TIMED_OUT],
)
def test_no_engine_died_of_what_it_answered_or_never_got(ending: Ending) -> None:
    plane = Plane()
    for _ in range(5):
        plane.end(7, (A, ending), (B, ending))
    assert plane.told == []


def test_answers_that_had_begun_do_not_count_and_a_last_word_does() -> None:
    plane = Plane()
    plane.end(7, (A, Ending.RESET), begun_for=2.0)
    plane.end(7, (B, Ending.RESET), begun_for=2.0)
    assert plane.told == []
    plane.end(7, (A, Ending.RESET), (B, Ending.ENGINE_DEAD), begun_for=0.05)
    assert plane.told == [RequestQuarantined(7, 600.0)]


def test_without_a_fingerprint_or_a_reservation_nobody_is_held() -> None:
    plane = Plane()
    for _ in range(3):
        plane.end(0, (A, Ending.RESET))
        plane.part.ended(record("unknown", ((A, Ending.RESET),), None))
    assert plane.told == []


def test_a_time_of_none_turns_it_off() -> None:
    plane = Plane(quarantine_seconds=0.0)
    plane.end(7, (A, Ending.RESET), (B, Ending.RESET))
    assert plane.told == []
    plane.part.follow(config(quarantine_seconds=5.0), PoolsDeclared(()))
    plane.end(7, (A, Ending.RESET), (B, Ending.RESET))
    assert plane.told == [RequestQuarantined(7, 5.0)]


def test_what_is_held_is_refused_and_all_else_is_served() -> None:
    fleet, decides = dispatcher("random", A, B, rng=Draws([0.5]))
    fleet.apply(RequestQuarantined(7, 60.0), 0.0)
    held = ask("one")._replace(fingerprint=7)
    assert decides.decide(held, 1.0) == Refusal(RefusalReason.QUARANTINED, "default")
    assert len(fleet.ledger) == 0
    assert isinstance(decides.decide(ask("two")._replace(fingerprint=8), 1.0), Decision)
    served = decides.decide(held, 60.0)
    assert isinstance(served, Decision)
    assert served.reservation.fingerprint == 7


def test_another_process_learns_of_it_with_all_else() -> None:
    fleet, _ = dispatcher("random", A, B, rng=Draws([0.5]))
    fleet.apply(RequestQuarantined(7, 60.0), 0.0)
    other = Fleet(45.0)
    other.restore(fleet.image(), 10.0)
    assert other.quarantine.holds(7, 59.9)
    assert not other.quarantine.holds(7, 60.0)
