import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tidegate.scheduling.budget import DAY_SECONDS, Budgets, Cost, Exceeded, Left, Limit, Unit, Window

NOON = 20_000 * DAY_SECONDS + DAY_SECONDS / 2
RPM = Limit(Unit.REQUESTS, Window.MINUTE, 60)
TPM = Limit(Unit.TOKENS, Window.MINUTE, 600)
DAILY = Limit(Unit.TOKENS, Window.DAY, 1000)
AT_ONCE = Limit(Unit.REQUESTS, Window.IN_FLIGHT, 2)
TOKENS_AT_ONCE = Limit(Unit.TOKENS, Window.IN_FLIGHT, 100)


def budgets(*limits: Limit, scope: str = "t") -> Budgets:
    made = Budgets()
    made.configure({scope: limits}, NOON)
    return made


def left(made: Budgets, scope: str = "t", now: float = NOON) -> list[int]:
    return [one.amount for one in made.left(scope, now)]


def test_a_hundred_parallel_requests_do_not_all_pass_a_limit_for_one() -> None:
    made = budgets(Limit(Unit.TOKENS, Window.MINUTE, 100))
    passed = [made.reserve(f"r{n}", ["t"], Cost(50, 30), NOON) for n in range(100)]
    assert passed.count(None) == 1
    assert len(made) == 1


def test_what_is_refused_is_told_how_long_until_it_would_pass_and_then_passes() -> None:
    made = budgets(TPM)
    assert made.reserve("a", ["t"], Cost(500, 100), NOON) is None
    refused = made.reserve("b", ["t"], Cost(100, 0), NOON)
    assert refused == Exceeded("t", TPM, 100, 10.0)
    assert made.reserve("b", ["t"], Cost(100, 0), NOON + 9.9) is not None
    assert made.reserve("b", ["t"], Cost(100, 0), NOON + 10.0) is None


def test_the_limit_that_is_longest_in_the_way_is_named_and_nothing_is_taken() -> None:
    made = Budgets()
    made.configure({"tenant": [RPM, DAILY], "key": [TPM]}, NOON)
    made.reserve("a", ["tenant", "key"], Cost(600, 0), NOON)
    refused = made.reserve("b", ["tenant", "key"], Cost(500, 0), NOON)
    assert refused is not None
    assert (refused.scope, refused.limit, refused.wait_seconds) == ("tenant", DAILY, DAY_SECONDS / 2)
    assert left(made, "tenant") == [59, 400]
    assert left(made, "key") == [0]


def test_what_can_never_pass_is_told_so() -> None:
    refused = budgets(TPM).reserve("a", ["t"], Cost(601, 0), NOON)
    assert refused is not None
    assert math.isinf(refused.wait_seconds)


def test_settling_gives_back_what_was_not_used() -> None:
    made = budgets(TPM, DAILY)
    made.reserve("a", ["t"], Cost(100, 400), NOON)
    assert made.settle("a", Cost(90, 10), NOON)
    assert left(made) == [500, 900]


def test_settling_takes_what_was_used_beyond_the_estimate_and_the_next_one_waits_for_it() -> None:
    made = budgets(TPM)
    made.reserve("a", ["t"], Cost(600, 0), NOON)
    made.settle("a", Cost(600, 600), NOON)
    assert left(made) == [0]
    refused = made.reserve("b", ["t"], Cost(10, 0), NOON)
    assert refused is not None
    assert refused.wait_seconds == 61.0


def test_what_a_dead_request_held_comes_back_once() -> None:
    made = budgets(RPM, TPM, AT_ONCE)
    made.reserve("a", ["t"], Cost(100, 100), NOON)
    assert made.release("a", NOON)
    assert not made.release("a", NOON)
    assert not made.settle("a", Cost(0, 0), NOON)
    assert left(made) == [60, 600, 2]


def test_what_is_in_flight_is_given_back_whatever_was_used() -> None:
    made = budgets(AT_ONCE, TOKENS_AT_ONCE)
    assert made.reserve("a", ["t"], Cost(10, 40), NOON) is None
    assert made.reserve("b", ["t"], Cost(10, 40), NOON) is None
    refused = made.reserve("c", ["t"], Cost(0, 0), NOON)
    assert refused == Exceeded("t", AT_ONCE, 1, 0.0)
    made.settle("a", Cost(10, 4000), NOON)
    assert left(made) == [1, 50]


def test_a_burst_may_be_smaller_than_a_minute() -> None:
    made = budgets(Limit(Unit.REQUESTS, Window.MINUTE, 60, burst=5))
    assert [made.reserve(f"r{n}", ["t"], Cost(1, 1), NOON) for n in range(5)] == [None] * 5
    assert made.reserve("r5", ["t"], Cost(1, 1), NOON) is not None
    assert made.reserve("r5", ["t"], Cost(1, 1), NOON + 1) is None
    assert left(made, now=NOON + 3600) == [5]


def test_a_day_begins_anew_at_midnight_and_remembers_what_is_owed() -> None:
    made = budgets(DAILY)
    made.reserve("a", ["t"], Cost(900, 100), NOON)
    made.settle("a", Cost(900, 400), NOON)
    midnight = NOON + DAY_SECONDS / 2
    assert left(made, now=midnight - 1) == [0]
    assert left(made, now=midnight) == [700]


def test_what_was_taken_yesterday_is_not_given_back_today() -> None:
    made = budgets(DAILY)
    made.reserve("a", ["t"], Cost(500, 500), NOON)
    made.reserve("b", ["t"], Cost(0, 0), NOON)
    tomorrow = NOON + DAY_SECONDS
    made.reserve("c", ["t"], Cost(100, 0), tomorrow)
    made.settle("a", Cost(500, 0), tomorrow)
    made.release("b", tomorrow)
    assert left(made, now=tomorrow) == [900]
    made.settle("c", Cost(0, 0), tomorrow)
    assert left(made, now=tomorrow) == [1000]


def test_a_clock_that_goes_back_refills_nothing_and_takes_nothing() -> None:
    made = budgets(TPM)
    made.reserve("a", ["t"], Cost(600, 0), NOON)
    assert left(made, now=NOON - 3600) == [0]
    assert left(made, now=NOON + 1) == [10]


def test_a_limit_that_is_changed_keeps_what_is_in_use() -> None:
    made = budgets(TPM, AT_ONCE)
    made.reserve("a", ["t"], Cost(100, 0), NOON)
    larger = Limit(Unit.TOKENS, Window.MINUTE, 1000)
    made.configure({"t": [larger, AT_ONCE]}, NOON)
    assert left(made) == [900, 1]
    made.settle("a", Cost(100, 0), NOON)
    assert left(made) == [900, 2]


def test_what_is_in_flight_under_no_limit_does_not_come_back_to_one_that_came_later() -> None:
    made = budgets(RPM)
    made.reserve("a", ["t"], Cost(1, 1), NOON)
    made.configure({"t": [RPM, AT_ONCE]}, NOON)
    made.reserve("b", ["t"], Cost(1, 1), NOON)
    assert left(made) == [58, 1]
    made.settle("a", Cost(1, 1), NOON)
    assert left(made) == [58, 1]
    made.configure({"t": [RPM]}, NOON)
    made.configure({"t": [RPM, AT_ONCE]}, NOON)
    made.settle("b", Cost(1, 1), NOON)
    assert left(made) == [58, 2]


def test_what_is_owed_is_owed_for_as_many_days_as_it_takes_and_the_wait_says_so() -> None:
    made = budgets(DAILY)
    made.reserve("a", ["t"], Cost(1000, 0), NOON)
    made.settle("a", Cost(3500, 0), NOON)
    refused = made.reserve("b", ["t"], Cost(400, 0), NOON)
    assert refused == Exceeded("t", DAILY, 400, 2.5 * DAY_SECONDS)
    assert left(made, now=NOON + 2.5 * DAY_SECONDS - 1) == [0]
    assert made.reserve("b", ["t"], Cost(400, 0), NOON + 2.5 * DAY_SECONDS) is None
    assert left(made, now=NOON + 10 * DAY_SECONDS) == [1000]


def test_more_than_may_ever_be_in_flight_never_passes() -> None:
    refused = budgets(TOKENS_AT_ONCE).reserve("a", ["t"], Cost(101, 0), NOON)
    assert refused == Exceeded("t", TOKENS_AT_ONCE, 101, math.inf)


def test_what_takes_nothing_of_a_limit_is_not_held_up_by_what_is_owed_there() -> None:
    made = budgets(Limit(Unit.OUTPUT_TOKENS, Window.MINUTE, 60))
    made.reserve("a", ["t"], Cost(0, 10), NOON)
    made.settle("a", Cost(0, 100), NOON)
    assert made.reserve("b", ["t"], Cost(10, 0), NOON) is None
    assert made.reserve("c", ["t"], Cost(10, 1), NOON) is not None


def test_what_a_request_holds_can_be_asked() -> None:
    made = budgets(RPM)
    made.reserve("a", ["t"], Cost(3, 4), NOON)
    assert (made.holds("a"), made.holds("b")) == (Cost(3, 4), None)


def test_a_scope_without_limits_holds_nobody_up() -> None:
    made = budgets(RPM)
    assert made.reserve("a", ["nobody"], Cost(10**9, 10**9), NOON) is None
    assert made.settle("a", Cost(0, 0), NOON)
    assert made.left("nobody", NOON) == []


def test_what_is_left_says_when_all_of_it_will_be_there() -> None:
    made = budgets(RPM, TPM, DAILY, AT_ONCE)
    assert [one.reset_seconds for one in made.left("t", NOON)] == [0, 0, 0, 0]
    made.reserve("a", ["t"], Cost(60, 0), NOON)
    assert made.left("t", NOON) == [
        Left(RPM, 59, 1.0),
        Left(TPM, 540, 6.0),
        Left(DAILY, 940, DAY_SECONDS / 2),
        Left(AT_ONCE, 1, 0.0),
    ]


def test_limits_have_names_and_cannot_be_given_twice_or_be_nothing() -> None:
    assert [limit.name for limit in (RPM, TPM, DAILY, AT_ONCE)] == [
        "requests_per_minute",
        "tokens_per_minute",
        "tokens_per_day",
        "requests_in_flight",
    ]
    for wrong in ([RPM, RPM], [Limit(Unit.REQUESTS, Window.MINUTE, 0)], [Limit(Unit.TOKENS, Window.MINUTE, 5, 0)]):
        with pytest.raises(ValueError, match="above zero, each given once"):
            Budgets().configure({"t": wrong}, NOON)


def test_a_request_cannot_reserve_twice() -> None:
    made = budgets(RPM)
    made.reserve("a", ["t"], Cost(1, 1), NOON)
    with pytest.raises(ValueError, match="already"):
        made.reserve("a", ["t"], Cost(1, 1), NOON)


@given(
    st.lists(st.tuples(st.floats(0.0, 5.0), st.integers(1, 300)), min_size=1, max_size=60),
    st.integers(100, 1000),
    st.integers(50, 1000),
)
def test_no_window_lets_more_pass_than_its_burst_and_what_flows_in(
    arrivals: list[tuple[float, int]], amount: int, burst: int
) -> None:
    made = budgets(Limit(Unit.INPUT_TOKENS, Window.MINUTE, amount, burst))
    now, passed = NOON, 0
    for number, (pause, tokens) in enumerate(arrivals):
        now += pause
        if made.reserve(f"r{number}", ["t"], Cost(tokens, 0), now) is None:
            passed += tokens
        assert passed <= burst + (now - NOON) * amount / 60.0 + 1e-6


class AnyOrder(RuleBasedStateMachine):
    """Requests that come, end and die in any order; what is used and held is counted beside."""

    def __init__(self) -> None:
        super().__init__()
        self.limits = [Limit(Unit.TOKENS, Window.IN_FLIGHT, 300), Limit(Unit.TOKENS, Window.DAY, 2000)]
        self.budgets = budgets(*self.limits)
        self.held: dict[str, Cost] = {}
        self.used = 0
        self.number = 0

    @rule(prompt=st.integers(0, 200), output=st.integers(0, 200))
    def come(self, prompt: int, output: int) -> None:
        self.number += 1
        cost = Cost(prompt, output)
        at_once = sum(one.of(Unit.TOKENS) for one in self.held.values()) + prompt + output
        fits = prompt + output == 0 or (at_once <= 300 and self.used + at_once <= 2000)
        assert (self.budgets.reserve(f"r{self.number}", ["t"], cost, NOON) is None) == fits
        if fits:
            self.held[f"r{self.number}"] = cost

    @rule(at=st.integers(0), prompt=st.integers(0, 400), output=st.integers(0, 400))
    def end(self, at: int, prompt: int, output: int) -> None:
        if self.held:
            name = sorted(self.held)[at % len(self.held)]
            del self.held[name]
            assert self.budgets.settle(name, Cost(prompt, output), NOON)
            self.used += prompt + output

    @rule(at=st.integers(0))
    def die(self, at: int) -> None:
        if self.held:
            name = sorted(self.held)[at % len(self.held)]
            del self.held[name]
            assert self.budgets.release(name, NOON)

    @invariant()
    def what_is_left_is_what_nobody_used_or_holds(self) -> None:
        held = sum(one.of(Unit.TOKENS) for one in self.held.values())
        assert len(self.budgets) == len(self.held)
        assert left(self.budgets) == [300 - held, max(0, 2000 - self.used - held)]


AnyOrder.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestAnyOrder = AnyOrder.TestCase
