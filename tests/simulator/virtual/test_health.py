"""Sick, silent, lying and flapping endpoints under a virtual clock: what the deciding code does about them."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

import pytest

from tidegate.fleet.events import EvidenceReported, HealthChanged, LoadReported, TimePassed
from tidegate.fleet.evidence import Evidence, Verdict
from tidegate.fleet.health import RULES, HealthStatus
from tidegate.fleet.load import EngineReport
from tidegate.simulator.virtual.conditions import Conditions, Fault, FaultKind
from tidegate.simulator.virtual.fleet import FleetSpec, address
from tidegate.simulator.virtual.outcome import Ending, Outcome
from tidegate.simulator.virtual.simulation import POOL, Simulation
from tidegate.simulator.virtual.workload import Arrival, Workload
from xds.endpoints import Members, members

EIGHT = FleetSpec.parse("h100:8")
SICK = address(3)
SOUND = Evidence("agent", Verdict.SOUND, valid_seconds=6.0)
XID = Evidence("agent", Verdict.FAILED, ("xid_79",), valid_seconds=6.0)

Saying = Callable[[int, float], Evidence | None]
"""Returns what the agent of an endpoint, by number, says at a time."""


def steady(seconds: float, every: float = 0.05) -> Workload:
    return Workload("steady", [Arrival(at * every, 800, 120) for at in range(round(seconds / every))])


class Watched(Simulation):
    """A run in which agents speak each second, and which notes what changes of health and in Envoy's table."""

    def __init__(
        self, seconds: float, say: Saying, *faults: Fault, policy: str = "predicted_latency", every: float = 0.05
    ) -> None:
        super().__init__(EIGHT, steady(seconds, every), policy, conditions=Conditions(faults=faults))
        self.changes: list[tuple[float, HealthChanged]] = []
        self.tables: list[Members] = []
        apply = self._fleet.apply

        def heard(event, now):  # type: ignore[no-untyped-def]
            changes = apply(event, now)
            self.changes += [(now, change) for change in changes if isinstance(change, HealthChanged)]
            if isinstance(event, TimePassed) or changes:
                table = members(self._fleet.view(POOL, now))
                if self.tables[-1:] != [table]:
                    self.tables.append(table)
            return changes

        self._fleet.apply = heard  # type: ignore[method-assign]
        for second in range(round(seconds)):
            self._at(float(second), self._speak, say)

    def _speak(self, say: Saying) -> None:
        for number in range(len(EIGHT.profiles)):
            if (said := say(number, self.now)) is not None:
                self._fleet.apply(EvidenceReported(address(number), said), self.now)

    def ejections(self, place: str = SICK) -> list[float]:
        return [
            at
            for at, change in self.changes
            if change.address == place and change.health.status is HealthStatus.EJECTED
        ]


def served(outcomes: Iterable[Outcome], after: float, before: float = 1e9) -> Counter[str]:
    return Counter(one.endpoint for one in outcomes if after <= one.arrived < before)


def answered(outcomes: Sequence[Outcome]) -> bool:
    return all(one.ending is Ending.ANSWERED for one in outcomes)


def test_an_agent_that_is_killed_costs_its_node_some_share_and_nothing_else() -> None:
    run = Watched(60.0, lambda number, now: None if number == 3 and now > 10 else SOUND, policy="random")
    outcomes = run.run().outcomes
    assert answered(outcomes)
    assert run.ejections() == []
    share = served(outcomes, 20.0)[SICK] / served(outcomes, 20.0).total()
    assert 0.02 < share < 0.09  # an eighth would be its whole one
    assert served(outcomes, 0.0, 10.0)[SICK] > 10


def test_when_all_agents_are_killed_nothing_changes() -> None:
    run = Watched(40.0, lambda _, now: SOUND if now < 10 else None, policy="round_robin")
    outcomes = run.run().outcomes
    assert answered(outcomes)
    assert min(served(outcomes, 20.0).values()) > 0.9 * max(served(outcomes, 20.0).values())


def test_a_gpu_that_is_lost_gets_no_request_from_that_moment_on() -> None:
    run = Watched(40.0, lambda number, now: XID if number == 3 and now >= 10 else SOUND)
    outcomes = run.run().outcomes
    assert run.ejections() == [10.0]
    assert SICK not in served(outcomes, 10.0)
    assert answered(outcomes)


def test_an_agent_that_calls_a_slow_engine_sound_draws_no_herd_to_it() -> None:
    run = Watched(60.0, lambda _, __: SOUND, Fault(FaultKind.SLOW, 3, 5.0, 1e6))
    outcomes = run.run().outcomes
    assert served(outcomes, 5.0)[SICK] <= 2 * served(outcomes, 5.0).total() / 8


@pytest.mark.parametrize("liars", [4, 8])
def test_agents_that_lie_about_half_the_fleet_or_all_of_it_eject_nobody(liars: int) -> None:
    run = Watched(40.0, lambda number, now: XID if number < liars and now >= 10 else SOUND, policy="least_request")
    outcomes = run.run().outcomes
    assert answered(outcomes)
    # The first are believed, until it shows how many there are.
    assert all(change.health.status is not HealthStatus.EJECTED for at, change in run.changes if at > 10.0)
    assert all(served(outcomes, 12.0)[address(number)] > 0 for number in range(8))


def test_a_node_that_flaps_every_two_seconds_for_five_minutes_changes_the_table_a_few_times() -> None:
    run = Watched(300.0, lambda number, now: XID if number == 3 and now % 4 < 2 else SOUND, every=0.3)
    outcomes = run.run().outcomes
    assert answered(outcomes)
    assert len(run.ejections()) == 1
    assert len(run.tables) <= 3


def test_a_node_that_flaps_slowly_is_away_for_longer_each_time() -> None:
    run = Watched(400.0, lambda number, now: XID if number == 3 and now % 40 < 2 else SOUND, every=0.5)
    run.run()
    backs = [at for at, change in run.changes if change.before.status is HealthStatus.EJECTED]
    away = [back - gone for gone, back in zip(run.ejections(), backs, strict=False)]
    assert away[0] == pytest.approx(RULES.hold_seconds, abs=1.0)
    assert away == sorted(away)
    assert away[-1] > 4 * away[0]
    assert len(run.tables) < 100  # one for each tenth of a share, at most


def test_nobody_is_sent_to_an_engine_that_stands_still_once_that_is_seen() -> None:
    still = Evidence("progress", Verdict.FAILED, ("no_progress",))
    run = Watched(
        40.0, lambda number, now: still if number == 3 and now >= 12 else None, Fault(FaultKind.FREEZE, 3, 10.0, 40.0)
    )
    outcomes = run.run().outcomes
    assert SICK not in served(outcomes, 12.0)


def test_when_all_are_really_dead_requests_fail_and_are_served_within_five_seconds_of_the_first_one_back() -> None:
    faults = [Fault(FaultKind.DIE, number, 10.0, 20.0 if number == 0 else 60.0) for number in range(8)]
    run = Watched(60.0, lambda _, __: None, *faults, policy="least_request")
    outcomes = run.run().outcomes
    assert {one.ending for one in outcomes if 11 < one.arrived < 29} == {Ending.FAILED}
    assert {one.ending for one in outcomes if one.arrived > 35} == {Ending.ANSWERED}


def test_a_check_that_a_busy_engine_answers_late_ejects_nobody() -> None:
    late = Evidence("http", Verdict.FAILED, ("http_timeout",), valid_seconds=6.0)
    run = Watched(40.0, lambda number, now: late if number == 3 and now >= 10 else None, policy="round_robin")
    outcomes = run.run().outcomes
    assert run.ejections() == []
    assert served(outcomes, 12.0)[SICK] > 0


def test_metrics_that_are_late_missing_or_restarted_make_nobody_sick() -> None:
    run = Watched(5.0, lambda _, __: None)
    for total in (100.0, None, 5.0, 1e308):
        changes = run._fleet.apply(LoadReported(SICK, EngineReport(generation_tokens_total=total)), 1.0)
        assert not any(isinstance(change, HealthChanged) for change in changes)
    run._fleet.apply(TimePassed(), 1000.0)
    assert run._fleet.is_well(POOL)
