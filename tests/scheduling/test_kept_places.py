"""Places that are kept free for the more important: when, for whom, and that nobody starves for them."""

import itertools

import pytest

from tests.scheduling.ask import A, B
from tests.scheduling.test_admission import Pool
from tidegate.scheduling.dispatch import Decision, Dispatcher
from tidegate.scheduling.line import Place, QueueSettings, Turnaway, Why
from tidegate.scheduling.room import Claim, Room
from tidegate.scheduling.wait import RECENT_SECONDS

SETTINGS = QueueSettings(max_wait_seconds=500.0, ageing_seconds=10.0, kept_share=0.25)
MOST = 4


class Busy:
    """Two endpoints with four places each, of which a request takes one for a second; it is polled at each end."""

    def __init__(self, settings: QueueSettings = SETTINGS) -> None:
        self.pool = Pool((A, B), most=MOST, settings=settings)
        self.now = 0.0
        self.ends: list[tuple[float, str]] = []
        self.went: list[str] = []
        self.names = itertools.count()

    def ask(self, priority: int, name: str = "") -> None:
        name = name or f"{priority}-{next(self.names)}"
        if isinstance(self.pool.ask(name, self.now, priority=priority), Decision):
            self._goes(name)
        self.poll()

    def _goes(self, name: str) -> None:
        self.went.append(name)
        self.ends.append((self.now + 1.0, name))

    def poll(self) -> None:
        for name in self.pool.poll(self.now):
            self._goes(name)
        assert all(self.pool.fleet.ledger.inflight(address).requests <= MOST for address in (A, B)), "no overshoot"

    def until(self, now: float) -> None:
        """Let time pass, as it does live: what ends makes room at once, and it is looked again each quarter second."""
        while self.now < now:
            due = min((end for end, _ in self.ends), default=now)
            self.now = min(now, max(self.now, due), self.now + 0.25)
            for end, name in tuple(self.ends):
                if end <= self.now:
                    self.ends.remove((end, name))
                    self.pool.end(name, self.now)
            self.poll()

    def overload(self, seconds: float, urgent_every: float) -> None:
        """Have more asked for than there is room for, and something urgent so often."""
        due = begun = self.now
        while self.now < begun + seconds:
            for _ in range(2):
                self.ask(0)
            if self.now >= due:
                self.ask(5)
                due += urgent_every
            self.until(self.now + 0.125)

    @property
    def free(self) -> int:
        return 2 * MOST - len(self.ends)


def test_a_place_is_kept_where_the_urgent_come_and_they_find_it() -> None:
    busy = Busy()
    busy.overload(20.0, 0.5)
    assert len(busy.pool.admission) > 10, "others wait"
    assert busy.free >= 1
    assert {one.kept for one in busy.pool.admission.standings(busy.now)} == {2}, "which is told"
    assert isinstance(busy.pool.ask("at once", busy.now, priority=5), Decision)
    assert isinstance(busy.pool.ask("normal", busy.now), Place)


def test_without_anybody_urgent_nothing_is_kept() -> None:
    busy = Busy()
    busy.overload(20.0, 1e9)  # but for one at the beginning
    busy.until(busy.now + RECENT_SECONDS)
    busy.overload(2.0, 1e9)
    assert busy.free <= 1
    alone = Busy()
    for _ in range(400):
        alone.ask(0)
        alone.until(alone.now + 0.1)
    assert alone.free == 0


def test_nothing_is_kept_where_that_is_not_wanted() -> None:
    busy = Busy(QueueSettings(max_wait_seconds=500.0, kept_share=0.0))
    busy.overload(20.0, 0.5)
    assert busy.free == 0


def test_of_a_place_or_two_none_is_kept() -> None:
    pool = Pool((A,), most=2, settings=SETTINGS)
    for at in range(40):
        pool.admission._lines["default"].drain.waits(at / 10)
        pool.admission._lines["default"].drain.taken(100, at / 10, empty=False, band=5)
    pool.admission.reconsider()
    pool.poll(4.0)
    assert pool.admission._lines["default"].claim(0, 4.0).kept == 0


def test_who_waits_goes_when_the_urgent_come_no_more() -> None:
    busy = Busy()
    busy.overload(20.0, 0.5)
    waiting = len(busy.pool.admission)
    busy.until(busy.now + waiting / 6 + 5.0)
    assert not len(busy.pool.admission), "at most two of eight places stood empty meanwhile"


@pytest.mark.parametrize("priority", [0, -1])
def test_who_waits_goes_beside_a_steady_stream_of_the_urgent(priority: int) -> None:
    busy = Busy()
    busy.overload(20.0, 0.5)
    busy.until(busy.now + 60.0)
    busy.ask(priority, "patient")
    for _ in range(200):
        busy.ask(5)
        busy.until(busy.now + 0.25)  # half of what there is
    assert "patient" in busy.went


def test_who_has_waited_so_long_that_he_stands_above_the_urgent_is_kept_from_no_place() -> None:
    busy = Busy()
    busy.overload(20.0, 0.5)
    line = busy.pool.admission._lines["default"]
    oldest = min(one.arrived for one in line.queue)
    assert line.claim(0, busy.now).kept > 0
    assert line.claim(0, oldest + 5 * SETTINGS.ageing_seconds + 0.1).kept == 0
    assert line.claim(5, busy.now).kept == 0


def test_a_stream_of_the_urgent_that_takes_all_there_is_starves_nobody_for_ever() -> None:
    busy = Busy()

    def stream(until: float) -> None:
        while busy.now < until and "patient" not in busy.went:
            busy.ask(5)
            busy.until(busy.now + 0.12)  # a little more than there is

    stream(10.0)
    busy.ask(0, "patient")
    stream(100.0)
    assert "patient" in busy.went
    assert 60 < busy.now < 90, "after as long as it takes to stand where they do"


def test_who_is_left_nothing_is_told_so_now_and_not_for_how_long() -> None:
    busy = Busy()
    for _ in range(400):
        busy.ask(0)
        busy.until(busy.now + 0.1)  # more than there is
    answer = busy.pool.ask("batch", busy.now, priority=-1)
    assert isinstance(answer, Turnaway)
    assert answer.why is Why.TOO_LONG
    assert answer.estimate is None
    assert answer.retry_seconds == SETTINGS.batch_max_wait_seconds, "it would have waited for so long"
    later = busy.now + RECENT_SECONDS
    assert isinstance(busy.pool.ask("later", later, priority=-1), Place), "it is not believed for ever"


def test_a_request_of_unknown_priority_is_looked_at_as_if_it_were_the_least_urgent() -> None:
    busy = Busy()
    busy.overload(20.0, 0.5)
    room: Room = busy.pool.admission._lines["default"].room
    assert room.claim.kept == busy.pool.admission._lines["default"].claim(0, busy.now).kept > 0
    dispatcher: Dispatcher = busy.pool.dispatcher
    assert dispatcher._rooms["default"] is room
    room.claim = Claim()
    busy.pool.admission.reconsider()
    busy.pool.poll(busy.now)
    assert room.claim.kept > 0, "it is said again with each look"
