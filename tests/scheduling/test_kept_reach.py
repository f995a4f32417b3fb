"""Places are kept where the more important may go, and nowhere else."""

import heapq
import itertools
import random

import pytest

from tests.scheduling.ask import A, B, C, ask, candidate
from tests.scheduling.test_admission import Pool
from tidegate.fleet.breaker import Circuit
from tidegate.fleet.endpoint import EndpointSpec, PoolSpec
from tidegate.fleet.events import PoolsDeclared
from tidegate.scheduling.dispatch import Decision
from tidegate.scheduling.line import Asker, Place, QueueSettings
from tidegate.scheduling.reach import MOST_REACHES, Asked, Reach, together, within
from tidegate.scheduling.room import Claim, Room
from tidegate.scheduling.subset import Subset

ADDRESSES = tuple(f"10.0.0.{at}:8000" for at in range(1, 11))
SERVICE_SECONDS = 10.0
ONLY_B = Reach("m", (Subset.of([B]),))


class Divided:
    """Ten endpoints of four places each: nine serve ``m``, of which the urgent ask for most, and one ``special``."""

    def __init__(self, kept_share: float, urgent: float, *, ordinary: float = 0.0) -> None:
        """Have so many ``urgent`` and ``ordinary`` requests for ``m`` a second."""
        settings = QueueSettings(max_wait_seconds=30.0, kept_share=kept_share)
        self.pool = pool = Pool((A,), 4, settings)
        members = tuple(
            EndpointSpec(address, max_running=4, models=("special" if address == ADDRESSES[-1] else "m",))
            for address in ADDRESSES
        )
        declared = PoolsDeclared((PoolSpec("default", "vllm", ("*",), members),))
        pool.fleet.apply(declared, 0.0)
        rooms = pool.admission.configure({"default": settings}, 0.0)
        pool.dispatcher.configure(declared, {"default": pool.policy}, rooms)
        self.rng, self.numbers = random.Random(3), itertools.count()
        self.events: list[tuple[float, int, str]] = []
        self.born: dict[str, float] = {}
        self.waits: dict[str, list[float]] = {"urgent": [], "ordinary": [], "special": []}
        self.most_kept = 0
        for kind, rate in {"urgent": urgent, "ordinary": ordinary, "special": 0.1}.items():
            now = 0.0
            while rate and now < 400.0:
                now += self.rng.expovariate(rate)
                self._at(now, f"{kind} {next(self.numbers)}")
        for tick in range(4 * 460):
            self._at(tick / 4, "")
        while self.events:
            self._happens(*heapq.heappop(self.events))

    def _at(self, now: float, name: str) -> None:
        heapq.heappush(self.events, (now, next(self.numbers), name))

    def _happens(self, now: float, _: int, name: str) -> None:
        if name in self.born:
            self.pool.end(name, now)
        elif name:
            self.born[name] = now
            kind = name.split(maxsplit=1)[0]
            request = ask(name, limit=10, model="special" if kind == "special" else "m")
            asker = Asker(priority=5 if kind == "urgent" else 0, bytes=1)
            if isinstance(self.pool.admission.ask(request, now, asker), Decision):
                self._goes(name, now)
        for gone in self.pool.poll(now):
            if isinstance(self.pool.over[gone].outcome, Decision):
                self._goes(gone, now)
        self.most_kept = max(self.most_kept, *(one.kept for one in self.pool.admission.standings(now)))

    def _goes(self, name: str, now: float) -> None:
        self.waits[name.split(maxsplit=1)[0]].append(now - self.born[name])
        self._at(now + self.rng.expovariate(1 / SERVICE_SECONDS), name)

    def mean(self, kind: str) -> float:
        return sum(self.waits[kind]) / len(self.waits[kind])


def test_an_endpoint_that_the_urgent_cannot_use_is_not_kept_for_them() -> None:
    nothing, kept = Divided(0.0, 2.9), Divided(0.5, 2.9)
    assert kept.most_kept > 4, "more than that endpoint has"
    assert len(kept.waits["special"]) >= 0.9 * len(nothing.waits["special"]) > 20
    assert kept.mean("special") < 0.5, "it is idle most of the time"
    assert kept.mean("urgent") <= nothing.mean("urgent") + 0.1, "nobody else is held up"


def test_where_the_urgent_may_go_places_are_kept_for_them_all_the_same() -> None:
    nothing, kept = Divided(0.0, 1.0, ordinary=3.5), Divided(0.15, 1.0, ordinary=3.5)
    assert kept.most_kept > 0
    assert kept.mean("urgent") < 0.5 * nothing.mean("urgent")


def test_what_is_free_elsewhere_in_the_pool_is_left_to_the_urgent_and_counts() -> None:
    room = Room(max_running=4)
    room.claim = Claim(kept=3, theirs=(Reach("m"),))
    mine, other = candidate(A, requests=2), candidate(B, requests=2)
    assert not room.keep(ask(), [mine]), "as far as is known"
    room.everybody = lambda: [mine, other]
    assert room.keep(ask(), [mine]) == [mine]
    room.everybody = lambda: [mine, other._replace(circuit=Circuit.OPEN)]
    assert not room.keep(ask(), [mine]), "nobody may be sent to the other"
    room.everybody = lambda: [mine, other._replace(models=("special",))]
    assert not room.keep(ask(), [mine])


def test_a_place_out_of_reach_is_taken_and_one_in_reach_left() -> None:
    room = Room(max_running=4)
    endpoints = [candidate(A, requests=1), candidate(B, requests=3), candidate(C, requests=3)]
    room.claim = Claim(kept=2, theirs=(ONLY_B,))
    room.everybody = lambda: endpoints
    assert [one.address for one in room.keep(ask(), endpoints)] == [A, C]
    room.claim = Claim(kept=0, theirs=(ONLY_B,))
    assert [one.address for one in room.keep(ask(), endpoints)] == [A, B, C]


def test_a_share_is_kept_of_the_places_that_the_urgent_may_take() -> None:
    pool = Pool((A, B), 4, QueueSettings(max_wait_seconds=500.0, kept_share=0.5))
    line = pool.admission._lines["default"]
    for reach, most in ((None, 4), (ONLY_B, 2)):
        for at in range(40):
            line.drain.waits(at / 10)
            line.drain.taken(100, at / 10, empty=False, band=5, reach=reach)
        line.learn(pool.fleet.view("default", 4.0).endpoints, 4.0)
        assert line.claim(0, 4.0).kept == most
        line.drain._bands.clear()


def test_who_asked_is_remembered_by_what_was_asked_for() -> None:
    pool = Pool((A,), 1)
    assert isinstance(pool.ask("first"), Decision)
    assert isinstance(pool.ask("second", priority=5), Place)
    pool.end("first", 1.0)
    assert pool.poll(1.0) == ["second"]
    line = pool.admission._lines["default"]
    assert line.drain._bands[5].asked.since(0.0) == (Reach("m"),)


def test_reaches_are_forgotten_and_bounded() -> None:
    asked = Asked()
    for at in range(MOST_REACHES):
        asked.add(Reach(f"m{at}"), float(at), 60.0)
    assert len(asked.since(-1.0)) == MOST_REACHES
    assert asked.since(MOST_REACHES - 2.0) == (Reach(f"m{MOST_REACHES - 1}"),)
    asked.add(Reach("one more"), 20.0, 60.0)
    asked.add(Reach("again"), 21.0, 60.0)
    assert asked.since(-1.0) == (), "anywhere"
    assert asked.since(20.5) == (Reach("again"),), "and that is forgotten, too"
    asked.add(Reach("late"), 200.0, 60.0)
    for at in range(MOST_REACHES):
        asked.add(Reach(f"m{at}"), 200.0, 60.0)
    assert asked.since(100.0) == ()


@pytest.mark.parametrize(
    ("reaches", "expected"),
    [((), [A, B, C]), ((Reach("m"),), [A, B]), ((Reach("x"),), [A, C]), ((Reach("x"), ONLY_B), [A, B, C])],
)
def test_an_endpoint_is_in_reach_by_its_models_and_by_who_narrowed_it_down(
    reaches: tuple[Reach, ...], expected: list[str]
) -> None:
    endpoints = [candidate(A), candidate(B, models=("m",)), candidate(C, models=("x",))]
    assert [one.address for one in within(endpoints, reaches)] == expected


def test_together_they_go_wherever_any_of_them_may() -> None:
    assert together([(Reach("a"),), (Reach("b"), Reach("a"))]) == (Reach("a"), Reach("b"))
    assert together([(Reach("a"),), ()]) == (), "one goes anywhere"
