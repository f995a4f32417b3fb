"""What is seen of an endpoint's requests under virtual time: do they move?"""

from typing import Any

from tidegate.engines.check import Standing
from tidegate.engines.movement import MOVED_SECONDS, Movement
from tidegate.fleet.load import AtWork, EngineReport


class Engine:
    """One engine, looked at once a second."""

    def __init__(self, **report: Any) -> None:
        self.now, self.report, self.requests = 100.0, EngineReport(**report), 0
        self.movement = Movement(self.now)

    def wait(self, seconds: int, *, tokens: float = 0.0) -> Standing:
        """Let time pass, while the engine makes so many tokens a second."""
        for _ in range(seconds):
            self.now += 1.0
            if tokens:
                made = (self.report.generation_tokens_total or 0.0) + tokens
                self.report = EngineReport(generation_tokens_total=made, running=self.report.running)
            self.movement.looked(self.work, self.now)
        return self.movement.standing(self.work, self.now)

    @property
    def work(self) -> AtWork:
        return AtWork(self.requests, 0.25, self.report)


def test_tokens_that_are_counted_are_progress() -> None:
    engine = Engine(generation_tokens_total=5.0)
    engine.requests = 2
    standing = engine.wait(100, tokens=1.0)
    assert (standing.moved, standing.counted, standing.still_seconds) == (True, True, 0.0)
    assert standing.prefill_seconds == 0.25


def test_a_frozen_core_stands_still_from_its_last_sign_on() -> None:
    engine = Engine(generation_tokens_total=5.0)
    engine.requests = 2
    engine.wait(10, tokens=1.0)
    assert engine.wait(5).moved
    standing = engine.wait(25)
    assert (standing.moved, standing.still_seconds) == (False, 30.0)


def test_an_engine_without_requests_does_not_stand_still_however_long() -> None:
    engine = Engine(generation_tokens_total=5.0)
    assert engine.wait(1000).still_seconds == 0.0
    engine.requests = 1
    assert engine.wait(7).still_seconds == 7.0


def test_requests_that_are_served_are_progress_where_nothing_is_counted() -> None:
    engine = Engine()
    engine.requests = 1
    engine.wait(20)
    engine.movement.served(engine.now)
    standing = engine.wait(3)
    assert (standing.moved, standing.counted, standing.still_seconds) == (True, False, 3.0)
    assert not engine.wait(int(MOVED_SECONDS)).moved


def test_counters_that_begin_anew_are_a_sign_of_life() -> None:
    engine = Engine(generation_tokens_total=500.0)
    engine.requests = 1
    engine.wait(20)
    engine.report = EngineReport(generation_tokens_total=0.0)
    assert engine.wait(1).moved


def test_what_others_have_there_is_told_from_what_is_ours() -> None:
    engine = Engine(running=5.0, waiting=2.0)
    engine.requests = 3
    assert engine.wait(1).others == 4.0
    engine.report = EngineReport()
    assert engine.wait(1).others is None


def test_silence_of_the_metrics_is_no_standing_still() -> None:
    engine = Engine(generation_tokens_total=5.0)
    engine.requests = 1
    engine.wait(5)
    engine.report = EngineReport()
    standing = engine.wait(100)
    assert not standing.counted
