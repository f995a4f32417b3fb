"""The script in Redis: the same as ``Budgets`` in one process, and what it does besides."""

import time
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.sharing.redis_server import RedisServer, redis_server
from tidegate.scheduling.budget import Budgets, Cost, Limit, Unit, Window
from tidegate.sharing import names, operations
from tidegate.sharing.operations import Operation, Reply

KEYS = names.keys("ledger")
LIMITS = [Limit(unit, window, 100) for window in (Window.DAY, Window.IN_FLIGHT) for unit in Unit]
ACTS = st.lists(
    st.one_of(
        st.tuples(st.just("reserve"), st.integers(0, 60), st.integers(0, 60), st.sets(st.sampled_from(LIMITS))),
        st.tuples(st.just("settle"), st.integers(0, 90), st.none() | st.integers(0, 90), st.integers(0, 30)),
        st.tuples(st.just("release"), st.just(0), st.just(0), st.integers(0, 30)),
    ),
    max_size=25,
)


@pytest.fixture(scope="module")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with redis_server(tmp_path_factory.mktemp("redis")) as running:
        yield running


class Ledger:
    """One replica's calls, one after the other."""

    def __init__(self, server: RedisServer, replica: str = "one", lease: float = 30.0) -> None:
        self._server = server
        self._replica = replica
        self._lease = lease
        self.epoch = ""

    def call(self, *asked: Operation, not_after: float = 0.0, answered: int = 0) -> Reply:
        about = (self._replica, self.epoch, f"new of {self._replica} {answered}", not_after, self._lease)
        arguments = (*map(str, about), operations.encoded(asked).decode(), str(answered + 1), str(answered))
        said: Any = self._server.do("EVAL", operations.SCRIPT, len(KEYS), *KEYS, *arguments)
        return operations.parse(said, len(asked))

    def join(self) -> "Ledger":
        self.epoch = self.call().epoch
        return self

    def one(self, operation: Operation) -> str:
        reply = self.call(operation)
        assert reply.state == "ok"
        return reply.results[0]


@pytest.fixture
def ledger(redis: RedisServer) -> Ledger:
    redis.do("FLUSHALL")
    return Ledger(redis).join()


def named(limit: Limit) -> tuple[str, Limit]:
    return limit.name, limit


def looked(ledger: Ledger, *limits: Limit) -> list[float]:
    return operations.looked(ledger.one(operations.look(map(named, limits))))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(ACTS)
def test_whatever_is_asked_redis_answers_as_one_process_would(redis: RedisServer, acts: list[Any]) -> None:
    redis.do("FLUSHALL")
    ledger, budgets, now = Ledger(redis).join(), Budgets(), time.time()
    budgets.configure({limit.name: [limit] for limit in LIMITS}, now)
    for number, (act, one, other, more) in enumerate(acts):
        if act == "reserve":
            limits = sorted(more, key=lambda limit: limit.name)
            exceeded = budgets.reserve(f"r{number}", [limit.name for limit in limits], Cost(one, other), now)
            result = ledger.one(operations.reserve(f"r{number}", Cost(one, other), map(named, limits)))
            granted, used = operations.reserved(result)
            assert granted is (exceeded is None)
            assert len(used) == len(limits)
        elif act == "settle":
            held = budgets.holds(f"r{more}")
            spent = Cost(one, 0 if held is None else held.output_tokens if other is None else other)
            done = budgets.settle(f"r{more}", spent, now)
            assert ledger.one(operations.settle(f"r{more}", one, other)) == str(int(done))
        else:
            assert ledger.one(operations.release(f"r{more}")) == str(int(budgets.release(f"r{more}", now)))
        for limit, used_now in zip(LIMITS, looked(ledger, *LIMITS), strict=True):
            (left,) = budgets.left(limit.name, now)
            assert left.amount == max(0, limit.amount - used_now)


def test_a_minute_gives_back_evenly_by_redis_own_clock(ledger: Ledger) -> None:
    limit = Limit(Unit.TOKENS, Window.MINUTE, 6000, 50)
    operation = operations.reserve("a", Cost(50, 0), [named(limit)])
    before = ledger.call(operation)
    assert before.results == ("1 50.000000",)
    time.sleep(0.1)
    after = ledger.call(operations.look([named(limit)]))
    (used,) = operations.looked(after.results[0])
    assert used == pytest.approx(50 - (after.now - before.now) * 100, abs=0.01)


def test_a_clock_that_went_back_goes_on_from_there_and_no_day_comes_twice(ledger: Ledger, redis: RedisServer) -> None:
    minute, day = Limit(Unit.TOKENS, Window.MINUTE, 600_000), Limit(Unit.TOKENS, Window.DAY, 100)
    ahead = time.time() + 90_000
    redis.do("HSET", KEYS[1], minute.name, f"100000 {ahead} m 600000 600000", day.name, f"70 {ahead} d 100 100")
    ledger.one(operations.reserve("a", Cost(10, 0), map(named, (minute, day))))
    time.sleep(0.05)
    used, of_the_day = looked(ledger, minute, day)
    assert 90_000 < used <= 99_600
    assert of_the_day == 80


def test_what_is_told_is_taken_in_once(ledger: Ledger) -> None:
    limits = [Limit(Unit.TOKENS, Window.DAY, 100), Limit(Unit.TOKENS, Window.IN_FLIGHT, 100)]
    telling = operations.tell(1, [(named(limits[0]), 30.0)], [("a", Cost(30, 0), [named(limit) for limit in limits])])
    assert ledger.one(telling) == "1"
    assert ledger.one(telling) == "0"
    assert looked(ledger, *limits) == [30, 30]
    assert ledger.one(operations.settle("a", 10, 0)) == "1"
    assert looked(ledger, *limits) == [10, 0]


def test_what_is_told_replaces_what_was_reserved_unheard(ledger: Ledger) -> None:
    limits = [Limit(Unit.TOKENS, Window.DAY, 100), Limit(Unit.TOKENS, Window.IN_FLIGHT, 100)]
    ledger.one(operations.reserve("a", Cost(70, 0), map(named, limits)))
    ledger.one(operations.tell(1, [(named(limits[0]), 70.0)], [("a", Cost(70, 0), [named(one) for one in limits])]))
    assert looked(ledger, *limits) == [70, 70]


def test_debts_come_to_no_more_than_the_whole(ledger: Ledger) -> None:
    limit = Limit(Unit.TOKENS, Window.DAY, 100)
    ledger.one(operations.reserve("a", Cost(80, 0), [named(limit)]))
    ledger.one(operations.tell(1, [(named(limit), 70.0)], []))
    assert looked(ledger, limit) == [100]
    ledger.one(operations.settle("a", 150, 0))
    ledger.one(operations.tell(2, [(named(limit), 70.0)], []))
    assert looked(ledger, limit) == [170], "what was used beyond it stays owed"


def test_nothing_is_done_too_late_or_in_another_epoch(ledger: Ledger, redis: RedisServer) -> None:
    limit = Limit(Unit.REQUESTS, Window.DAY, 5)
    asked = operations.reserve("a", Cost(0, 0), [named(limit)])
    late = ledger.call(asked, not_after=time.time() - 5)
    assert (late.state, late.results) == ("late", ())
    ledger.epoch = "another"
    other = ledger.call(asked)
    assert (other.state, other.epoch, other.results) == ("epoch", "new of one 0", ())
    assert other.age < 5
    ledger.join()
    assert looked(ledger, limit) == [0]
    redis.do("FLUSHALL")
    Ledger(redis, "two").join()
    assert ledger.call(asked).state == "epoch"


def test_replicas_are_counted_while_they_are_heard(ledger: Ledger, redis: RedisServer) -> None:
    other = Ledger(redis, "two").join()
    assert (ledger.call().replicas, other.call().here) == (2, 2)
    seen = time.time() - 5
    redis.do("HSET", KEYS[4], "two", f"{seen:.6f} -1 0")
    assert (ledger.call().replicas, ledger.call().here) == (2, 1)
    redis.do("HSET", KEYS[4], "two", f"{seen - 10:.6f} -1 0")
    assert ledger.call().replicas == 1
    redis.do("HSET", KEYS[4], "two", f"{seen - 4000:.6f} -1 0")
    ledger.call()
    assert redis.do("HLEN", KEYS[4]) == 1
    ledger.call(operations.LEAVE)
    assert redis.do("HLEN", KEYS[4]) == 0


def test_a_memory_that_lacks_what_was_answered_gives_way_to_a_new_one(ledger: Ledger, redis: RedisServer) -> None:
    limit = Limit(Unit.REQUESTS, Window.DAY, 5)
    asked = operations.reserve("a", Cost(0, 0), [named(limit)])
    assert ledger.call(asked, answered=3).state == "epoch"
    assert redis.do("EXISTS", KEYS[1], KEYS[2], KEYS[3]) == 0
    ledger.epoch = "new of one 3"
    for number in range(4, 7):
        assert ledger.call(operations.LEAVE if number == 6 else asked, answered=number).state == "ok"


def test_leases_that_are_renewed_go_on_and_the_unknown_are_named(ledger: Ledger, redis: RedisServer) -> None:
    limit = Limit(Unit.REQUESTS, Window.IN_FLIGHT, 5)
    for number in "abc":
        ledger.one(operations.reserve(number, Cost(0, 0), [named(limit)]))
    redis.do("ZADD", KEYS[3], 1, "a", 1, "b")
    assert looked(ledger, limit) == [1]
    assert ledger.one(operations.renew(["a", "b", "c", "d"])) == "a b d"
    assert int(redis.do("ZSCORE", KEYS[3], "c")) > time.time() + 25


def test_accounts_that_nobody_uses_are_forgotten(ledger: Ledger, redis: RedisServer) -> None:
    old, debt, limit = time.time() - 4000, time.time() - 2, Limit(Unit.REQUESTS, Window.DAY, 5)
    redis.do("HSET", KEYS[1], "idle", f"0 {old} m 60 60", "running", f"3 {old} f 5 5", "fresh", f"0 {debt} m 60 60")
    looked(ledger, limit)
    assert sorted(redis.do("HKEYS", KEYS[1])) == [b"fresh", b"running"]
    assert 0 < int(redis.do("TTL", KEYS[1])) <= 691_200
