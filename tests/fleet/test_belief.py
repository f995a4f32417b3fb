"""What other replicas say is believed before an engine shows it, and not against what it shows after a while."""

import random

from hypothesis import given
from hypothesis import strategies as st

from tests.fleet.declare import A, B, fleet_of, pool, reservation, seen
from tests.scheduling.ask import ask
from tidegate.fleet.events import LoadReported, OthersReported, RequestReserved, ScrapeStarted
from tidegate.fleet.load import EngineReport
from tidegate.fleet.others import CONFIRMED_SECONDS, MOST_TIMES_MEAN, ON_THE_WAY, Others
from tidegate.scheduling.room import Room

MOST = 2**32 - 1
LIE = Others(MOST, MOST, MOST, MOST)
PERIOD = 0.25
SECONDS = 2.0


def plus(one: Others, other: Others) -> Others:
    return Others(*(left + right for left, right in zip(one, other, strict=True)))


def honest(requests: int) -> Others:
    return Others(requests, requests * 1_000, requests * 1_500, 0)


class Time:
    """A fleet of two that hears replicas every quarter second, and its engines every second."""

    def __init__(self) -> None:
        self.fleet = fleet_of(pool(A, B))
        self.now = 0.0

    def passes(self, seconds: float, told: Others | None, running: float | None = 0.0, waiting: float = 0.0) -> None:
        for _ in range(round(seconds / PERIOD)):
            loads = () if told is None else ((A, told), (B, told))
            self.fleet.apply(OthersReported(loads, SECONDS), self.now)
            if self.now % 1.0 == 0.0:
                for address in (A, B):
                    self.fleet.apply(ScrapeStarted(address), self.now)
                    self.fleet.apply(LoadReported(address, EngineReport(running, waiting)), self.now)
            self.now += PERIOD

    @property
    def requests(self) -> float:
        return seen(self.fleet, A, self.now).requests


def test_who_says_that_all_engines_are_overrun_stops_nobody_for_long() -> None:
    time, room = Time(), Room(max_running=8)
    time.passes(CONFIRMED_SECONDS, LIE)
    assert not room.keep(ask(), time.fleet.view("default", time.now).endpoints), "it may be so"
    for _ in range(40):
        time.passes(1.0, LIE)
        if time.now > CONFIRMED_SECONDS + 1.0:
            view = time.fleet.view("default", time.now).endpoints
            assert len(room.keep(ask(), view)) == 2
            assert all(one.requests <= ON_THE_WAY for one in view)
            assert all(one.tokens <= ON_THE_WAY * 1_000 * MOST_TIMES_MEAN for one in view)
            assert all(one.backlog <= ON_THE_WAY for one in view)


def test_the_others_are_still_seen_at_once_beside_one_who_is_wrong() -> None:
    time = Time()
    time.passes(5.0, plus(LIE, honest(20)), running=20.0)
    before = time.requests
    assert 20 <= before <= 20 * 1.25 + ON_THE_WAY
    time.passes(PERIOD, plus(LIE, honest(50)), running=20.0)
    assert time.requests == before + 30
    time.passes(PERIOD, plus(LIE, honest(20)), running=20.0)
    assert time.requests == before


def test_a_burst_is_seen_before_any_report_shows_it_and_after() -> None:
    time = Time()
    time.passes(5.0, honest(2), running=2.0)
    time.passes(PERIOD, honest(100), running=2.0)
    assert time.requests == 100
    time.passes(10.0, honest(100), running=60.0, waiting=40.0)
    assert time.requests == 100


def test_once_the_lie_ends_the_others_are_believed() -> None:
    time = Time()
    time.passes(5.0, plus(LIE, honest(30)), running=25.0)
    time.passes(PERIOD, honest(30), running=25.0)
    assert time.requests == 30
    time.passes(PERIOD, None)
    time.passes(PERIOD, honest(40))
    assert time.requests == 40


def test_who_nobody_contradicts_is_believed() -> None:
    time = Time()
    time.passes(10.0, honest(30), running=None)
    assert time.requests == 30, "it does not say what it runs"
    for number in range(20):
        time.fleet.apply(RequestReserved(reservation(str(number))), time.now)
    time.passes(10.0, honest(30), running=0.0)
    assert time.requests == 50, "it does not show our own either"


def test_no_request_of_others_is_larger_than_any_is() -> None:
    time = Time()
    time.passes(PERIOD, Others(0, MOST, MOST, MOST))
    here = seen(time.fleet, A, time.now)
    assert (here.requests, here.tokens, here.context, here.backlog) == (0, 0, 0, 0)
    time.passes(PERIOD, Others(2, MOST, MOST, MOST))
    here = seen(time.fleet, A, time.now)
    assert here.tokens == here.context == 2 * 1_000 * MOST_TIMES_MEAN


def test_prompts_that_were_said_to_wait_all_the_time_do_not_where_nothing_waits() -> None:
    time = Time()
    time.passes(5.0, Others(2, 30_000, 30_000, 20_000), running=2.0)
    assert seen(time.fleet, A, time.now).backlog == 0
    time.passes(PERIOD, Others(3, 36_000, 36_000, 26_000), running=2.0)
    assert 0 < seen(time.fleet, A, time.now).backlog <= 6_000
    time.passes(2.0, Others(2, 30_000, 30_000, 20_000), running=1.0, waiting=1.0)
    assert seen(time.fleet, A, time.now).backlog > 10_000


@given(seed=st.integers(0, 2**20), lies=st.lists(st.integers(0, 2**33), min_size=1, max_size=5))
def test_more_is_never_believed_than_is_said_and_never_less_than_is_shown(seed: int, lies: list[int]) -> None:
    rng, time = random.Random(seed), Time()
    for _ in range(30):
        figure, running = rng.choice(lies), float(rng.randrange(50))
        time.passes(PERIOD, rng.choice([None, Others(figure, figure, figure, figure)]), running)
        member = time.fleet._endpoints[A]
        if member.others is not None:
            believed = member.others.believed(1_000.0)
            assert all(0 <= one <= said for one, said in zip(believed, member.others.told, strict=True))
        assert time.requests >= (member.foreign or 0.0)


def test_a_worker_that_begins_anew_believes_what_the_others_do() -> None:
    time, replica = Time(), fleet_of()
    time.passes(5.0, plus(LIE, honest(20)), running=20.0)
    replica.restore(time.fleet.image(), time.now)
    assert seen(replica, A, time.now).requests == time.requests < 40
