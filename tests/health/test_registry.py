"""What is known of nodes: the last report of each, and how old it is."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tidegate.health.registry import FORGET_SECONDS, MAX_LIVES, MIN_SILENT_SECONDS, Intake, Registry
from tidegate.health.reported import Driver, Report


def report(node: str = "n1", boot: str = "a", sequence: int = 1, interval: float = 2.0) -> Report:
    return Report(node, boot, sequence, interval, "m", "0.1.0", Driver.USABLE, "580", (), (), ())


@pytest.fixture
def registry() -> Registry:
    return Registry(max_nodes=3)


def test_the_last_report_is_kept_with_its_age(registry: Registry) -> None:
    assert registry.take(report(), 10.0) is Intake.TAKEN
    assert registry.take(report(sequence=2), 12.0) is Intake.TAKEN
    heard = registry.last("n1")
    assert heard is not None
    assert (heard.report.sequence, heard.age(15.0)) == (2, 3.0)
    assert registry.last("n2") is None


@pytest.mark.parametrize("sequence", [1, 4, 5])
def test_a_sequence_that_is_not_newer_changes_nothing(sequence: int, registry: Registry) -> None:
    registry.take(report(sequence=5), 10.0)
    assert registry.take(report(sequence=sequence), 20.0) is Intake.STALE
    heard = registry.last("n1")
    assert heard is not None
    assert (heard.report.sequence, heard.at) == (5, 10.0)


def test_a_gap_in_the_sequence_is_nothing(registry: Registry) -> None:
    registry.take(report(sequence=1), 10.0)
    assert registry.take(report(sequence=2**64 - 1), 11.0) is Intake.TAKEN


def test_a_new_life_of_an_agent_begins_its_sequence_anew(registry: Registry) -> None:
    registry.take(report(boot="a", sequence=500), 10.0)
    assert registry.take(report(boot="b", sequence=1), 11.0) is Intake.TAKEN
    assert registry.current("n1", 11.0) == report(boot="b", sequence=1)


def test_a_former_life_says_nothing_while_the_present_one_speaks(registry: Registry) -> None:
    registry.take(report(boot="a", sequence=5), 10.0)
    registry.take(report(boot="b", sequence=1), 11.0)
    assert registry.take(report(boot="a", sequence=6), 12.0) is Intake.STALE


def test_a_former_life_is_heard_again_once_the_later_one_is_silent_but_no_echo_of_it(registry: Registry) -> None:
    registry.take(report(boot="a", sequence=5), 10.0)
    registry.take(report(boot="b", sequence=1), 11.0)
    assert registry.take(report(boot="a", sequence=5), 60.0) is Intake.STALE
    assert registry.take(report(boot="a", sequence=6), 60.0) is Intake.TAKEN
    assert registry.take(report(boot="b", sequence=2), 60.0) is Intake.STALE


def test_a_silent_node_is_unknown_and_its_last_report_is_kept(registry: Registry) -> None:
    registry.take(report(interval=2.0), 10.0)
    assert registry.current("n1", 16.0) is not None
    assert registry.current("n1", 16.1) is None
    assert registry.last("n1") is not None


def test_nobody_is_silent_within_seconds_however_often_he_meant_to_report(registry: Registry) -> None:
    registry.take(report(interval=0.001), 10.0)
    assert registry.current("n1", 10.0 + MIN_SILENT_SECONDS) is not None
    assert registry.current("n1", 10.1 + MIN_SILENT_SECONDS) is None


def test_there_is_room_for_a_bounded_number_of_nodes(registry: Registry) -> None:
    for number in range(3):
        assert registry.take(report(node=f"n{number}"), 10.0 + number) is Intake.TAKEN
    assert registry.take(report(node="late"), 20.0) is Intake.FULL
    assert registry.take(report(node="n0", sequence=2), 20.0) is Intake.TAKEN
    assert len(registry) == 3
    assert registry.take(report(node="late"), 11.0 + FORGET_SECONDS) is Intake.TAKEN
    assert {heard.report.node for heard in registry} == {"n0", "n2", "late"}


def test_a_node_that_is_forgotten_may_begin_anew(registry: Registry) -> None:
    registry.take(report(sequence=9), 10.0)
    registry.forget("n1")
    registry.forget("n1")
    assert registry.take(report(sequence=1), 11.0) is Intake.TAKEN


@given(st.floats(allow_nan=False, allow_infinity=False), st.floats(allow_nan=False, allow_infinity=False))
def test_a_clock_that_jumps_makes_no_age_negative(before: float, after: float) -> None:
    registry = Registry()
    registry.take(report(), before)
    heard = registry.last("n1")
    assert heard is not None
    assert heard.age(after) >= 0
    assert registry.take(report(sequence=2), after) is Intake.TAKEN


class Nodes(RuleBasedStateMachine):
    """Agents that start anew, repeat themselves, stop, and are too many."""

    def __init__(self) -> None:
        super().__init__()
        self.registry = Registry(max_nodes=4)
        self.now = 0.0
        self.newest: dict[tuple[str, str], int] = {}

    @rule(seconds=st.floats(0, 5000))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @rule(node=st.sampled_from("abcdef"), boot=st.sampled_from("xyz"), sequence=st.integers(1, 20))
    def a_report_comes_in(self, node: str, boot: str, sequence: int) -> None:
        before = self.registry.last(node)
        if before is None:
            self.newest = {life: last for life, last in self.newest.items() if life[0] != node}
        outcome = self.registry.take(report(node, boot, sequence), self.now)
        heard = self.registry.last(node)
        if outcome is Intake.TAKEN:
            assert heard is not None
            assert (heard.report.boot_id, heard.report.sequence, heard.at) == (boot, sequence, self.now)
            assert sequence > self.newest.get((node, boot), 0)
            self.newest[node, boot] = sequence
        else:
            assert heard is before

    @invariant()
    def it_stays_within_its_bounds(self) -> None:
        assert len(self.registry) <= 4
        assert set(self.registry._lives) == {heard.report.node for heard in self.registry}
        assert all(len(lives) <= MAX_LIVES for lives in self.registry._lives.values())


TestNodes = Nodes.TestCase
