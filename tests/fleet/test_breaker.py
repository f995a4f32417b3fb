"""A breaker under virtual time: what opens it, for how long, and how it closes."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fleet.declare import A, B
from tidegate.fleet.breaker import (
    CALM_SECONDS,
    JITTER,
    SOURCE,
    STORM_ENDINGS,
    STORM_SECONDS,
    Breaker,
    BreakerRules,
    Circuit,
)
from tidegate.fleet.evidence import FAILURES, Ending, Verdict

RULES = BreakerRules()
PLAIN = Ending.SERVER_ERROR


class Endpoint:
    """One endpoint with its breaker, and a clock."""

    def __init__(self, rules: BreakerRules = RULES, address: str = A) -> None:
        self.breaker, self.rules, self.address, self.now, self.number = Breaker(), rules, address, 1000.0, 0

    def send(self) -> tuple[str, float]:
        self.number += 1
        self.breaker.sent(f"r{self.number}", self.now)
        return f"r{self.number}", self.now

    def end(self, sent: tuple[str, float], ending: Ending, *, alone: bool = True) -> bool:
        name, at = sent
        return self.breaker.heard(name, ending, at, self.now, self.address, self.rules, alone=alone)

    def ask(self, *endings: Ending, alone: bool = True) -> Circuit:
        """Send one request after the other, and return what the breaker says after the last."""
        for ending in endings:
            self.end(self.send(), ending, alone=alone)
        return self.circuit()

    def open(self) -> float:
        """Let it open; return for how long, in seconds."""
        self.ask(*[PLAIN] * 5)
        assert self.circuit() is Circuit.OPEN
        return self.breaker.until - self.now

    def circuit(self) -> Circuit:
        return self.breaker.circuit(self.now)


def test_failures_in_a_row_open_it_and_one_fewer_do_not() -> None:
    endpoint = Endpoint()
    assert endpoint.ask(*[PLAIN] * 4) is Circuit.CLOSED
    assert endpoint.ask(PLAIN) is Circuit.OPEN
    word = endpoint.breaker.word(endpoint.now)
    assert (word.source, word.verdict, word.reasons) == (SOURCE, Verdict.FAILED, ("server_error",))
    assert word.valid_seconds == endpoint.breaker.until - endpoint.now


def test_a_request_that_is_served_between_begins_the_row_anew() -> None:
    assert Endpoint().ask(*[*[PLAIN] * 4, Ending.SERVED] * 3) is Circuit.CLOSED


@pytest.mark.parametrize("ending", [Ending.NEUTRAL, Ending.BUSY])
def test_what_says_nothing_neither_counts_nor_begins_the_row_anew(ending: Ending) -> None:
    endpoint = Endpoint()
    assert endpoint.ask(*[ending] * 100, alone=False) is Circuit.CLOSED
    assert endpoint.ask(*[PLAIN, ending] * 4, PLAIN, alone=False) is Circuit.OPEN


@pytest.mark.parametrize(
    ("ending", "requests"),
    [
        (Ending.ENGINE_DEAD, 1),
        (Ending.OUT_OF_MEMORY, 2),
        (Ending.STALLED, 3),
        (Ending.TIMED_OUT, 3),
        *((ending, 5) for ending in (Ending.RESET, Ending.UNCONNECTED, Ending.SERVER_ERROR, Ending.BROKEN_ANSWER)),
    ],
)
def test_endings_weigh_as_much_as_they_say(ending: Ending, requests: int) -> None:
    endpoint = Endpoint()
    assert endpoint.ask(*[ending] * (requests - 1)) is Circuit.CLOSED
    assert endpoint.ask(ending) is Circuit.OPEN
    assert endpoint.breaker.reason == ending.value


def test_half_of_the_recent_requests_open_it_without_any_row_but_not_of_too_few() -> None:
    endpoint = Endpoint()
    assert endpoint.ask(*[Ending.SERVED, PLAIN] * 9) is Circuit.CLOSED
    assert endpoint.ask(Ending.SERVED, PLAIN) is Circuit.OPEN


def test_failures_of_long_ago_are_no_share_of_the_recent_requests() -> None:
    endpoint = Endpoint()
    endpoint.ask(*[Ending.SERVED, PLAIN] * 9)
    endpoint.now += 2 * RULES.window_seconds
    assert endpoint.ask(*[Ending.SERVED, PLAIN] * 9) is Circuit.CLOSED
    assert endpoint.ask(*[Ending.SERVED] * 20, PLAIN) is Circuit.CLOSED


def test_it_stays_open_twice_as_long_each_time_up_to_a_limit() -> None:
    endpoint, opened = Endpoint(), []
    endpoint.open()
    for _ in range(10):
        opened.append(endpoint.breaker.until - endpoint.now)
        endpoint.now = endpoint.breaker.until
        assert endpoint.ask(PLAIN) is Circuit.OPEN
    expected = [min(300.0, 5.0 * 2**number) for number in range(10)]
    assert all(least <= seconds < least * (1 + JITTER) for seconds, least in zip(opened, expected, strict=True))


def test_endpoints_that_fail_together_are_not_tried_together_and_every_replica_says_the_same() -> None:
    assert Endpoint(address=A).open() != Endpoint(address=B).open()
    assert Endpoint(address=A).open() == Endpoint(address=A).open()


def test_half_open_one_request_at_a_time_tries_it_and_two_that_are_served_close_it() -> None:
    endpoint = Endpoint()
    endpoint.now += endpoint.open()
    assert endpoint.circuit() is Circuit.HALF_OPEN
    assert endpoint.breaker.word(endpoint.now).verdict is Verdict.IMPAIRED
    first = endpoint.send()
    assert endpoint.circuit() is Circuit.TRYING
    assert not endpoint.end(first, Ending.SERVED)
    assert endpoint.circuit() is Circuit.HALF_OPEN
    assert endpoint.end(endpoint.send(), Ending.SERVED)
    assert endpoint.circuit() is Circuit.CLOSED
    assert endpoint.breaker.word(endpoint.now).verdict is Verdict.SOUND


@pytest.mark.parametrize("ending", [Ending.NEUTRAL, Ending.BUSY])
def test_a_trial_that_says_nothing_lets_another_one_try(ending: Ending) -> None:
    endpoint = Endpoint()
    endpoint.now += endpoint.open()
    assert endpoint.ask(ending) is Circuit.HALF_OPEN
    assert endpoint.ask(Ending.SERVED, ending, Ending.SERVED) is Circuit.CLOSED


def test_a_trial_of_which_nothing_is_heard_any_more_lets_another_one_try() -> None:
    endpoint = Endpoint()
    endpoint.now += endpoint.open()
    name, _ = endpoint.send()
    endpoint.breaker.lost("another")
    assert endpoint.circuit() is Circuit.TRYING
    endpoint.breaker.lost(name)
    assert endpoint.circuit() is Circuit.HALF_OPEN


def test_requests_that_were_there_before_it_opened_say_nothing_afterwards() -> None:
    endpoint = Endpoint()
    before = [endpoint.send() for _ in range(20)]
    endpoint.now += 1.0
    seconds = endpoint.open()
    until = endpoint.breaker.until
    for old in before[:10]:
        endpoint.end(old, PLAIN)
    endpoint.now += seconds
    for old in before[10:15]:
        endpoint.end(old, Ending.SERVED)
    for old in before[15:]:
        endpoint.end(old, PLAIN)
    assert endpoint.circuit() is Circuit.HALF_OPEN
    assert endpoint.breaker.until == until
    assert endpoint.ask(Ending.SERVED, Ending.SERVED) is Circuit.CLOSED
    for _ in range(10):
        endpoint.end(("of long ago", 1000.0), Ending.STALLED)
    assert endpoint.circuit() is Circuit.CLOSED


def test_where_it_is_used_while_open_what_it_serves_closes_it() -> None:
    endpoint = Endpoint()
    endpoint.open()
    assert endpoint.ask(Ending.SERVED, PLAIN, Ending.SERVED) is Circuit.OPEN, "in a row"
    assert endpoint.ask(Ending.SERVED) is Circuit.CLOSED


def test_one_that_was_well_for_a_while_begins_with_a_short_time_again() -> None:
    endpoint = Endpoint()
    first = endpoint.open()
    endpoint.now += first
    endpoint.ask(Ending.SERVED, Ending.SERVED)
    endpoint.now += CALM_SECONDS / 2
    assert endpoint.open() > first * 1.5
    endpoint.now = endpoint.breaker.until
    endpoint.ask(Ending.SERVED, Ending.SERVED)
    endpoint.now += CALM_SECONDS
    assert endpoint.open() == first


def test_a_node_that_comes_and_goes_for_five_minutes_is_tried_ever_less() -> None:
    endpoint, asked = Endpoint(), 0
    for second in range(300):
        endpoint.now = 1000.0 + second
        well = second // 2 % 2 == 0
        if endpoint.circuit() <= Circuit.HALF_OPEN:
            asked += not well
            endpoint.ask(Ending.SERVED if well else Ending.RESET)
    assert endpoint.breaker.openings >= 3
    assert asked < 40, "of the 150 seconds in which it was away"


def test_refusals_for_load_of_an_engine_that_has_nothing_of_ours_and_serves_nobody_are_failures() -> None:
    endpoint = Endpoint()
    endpoint.ask(*[Ending.BUSY] * (STORM_ENDINGS + 5))
    assert endpoint.circuit() is Circuit.CLOSED, "a burst is no storm"
    endpoint.now += STORM_SECONDS
    assert endpoint.ask(Ending.BUSY, alone=False) is Circuit.CLOSED, "it is full of what we sent it"
    assert endpoint.ask(Ending.BUSY) is Circuit.OPEN
    assert endpoint.breaker.reason == "refuses_all"


def test_an_engine_that_serves_now_and_then_may_refuse_all_others() -> None:
    endpoint = Endpoint()
    for _ in range(50):
        endpoint.ask(Ending.SERVED, *[Ending.BUSY] * (STORM_ENDINGS - 1))
        endpoint.now += STORM_SECONDS
    assert endpoint.circuit() is Circuit.CLOSED


def test_nothing_is_remembered_of_an_endpoint_that_is_well() -> None:
    endpoint = Endpoint()
    endpoint.ask(PLAIN)
    assert not endpoint.breaker.idle(endpoint.now, RULES)
    endpoint.ask(Ending.SERVED)
    assert not endpoint.breaker.idle(endpoint.now, RULES)
    endpoint.now += CALM_SECONDS
    assert endpoint.breaker.idle(endpoint.now, RULES)


STEPS = st.lists(
    st.tuples(st.sampled_from(Ending), st.floats(0.0, 20.0), st.booleans(), st.integers(0, 3)), max_size=80
)


@given(STEPS)
def test_whatever_happens_no_two_requests_try_it_at_once(steps: list[tuple[Ending, float, bool, int]]) -> None:
    endpoint = Endpoint(dataclasses.replace(RULES, consecutive=2.0, volume=4, open_seconds=1.0))
    there: list[tuple[str, float]] = []
    for ending, pause, sends, which in steps:
        endpoint.now += pause
        if sends and endpoint.circuit() <= Circuit.HALF_OPEN:
            there.append(endpoint.send())
        elif there:
            endpoint.end(there.pop(which % len(there)), ending, alone=not there)
        opened = endpoint.breaker.opened_at
        if opened is not None:
            assert len([at for _, at in there if at > opened]) <= 1
            assert endpoint.breaker.until > opened
            assert endpoint.breaker.trials <= {name for name, _ in there}
        assert 0 <= endpoint.breaker.failed <= endpoint.breaker.ended


@given(st.lists(st.sampled_from(sorted(set(Ending) - FAILURES, key=str)), max_size=60), st.floats(0.0, 0.2))
def test_without_a_failure_it_never_opens(endings: list[Ending], pause: float) -> None:
    endpoint = Endpoint()
    for ending in endings:
        endpoint.now += pause
        assert endpoint.ask(ending, alone=False) is Circuit.CLOSED
