"""Replicas on one Redis: what they may use is used once, whoever of them is asked."""

import asyncio
from contextlib import AsyncExitStack

import pytest

from tests.sharing.redis_server import RedisServer
from tests.sharing.replica import SCOPE, Replica, in_flight, per_day, per_minute, replicas
from tidegate.scheduling.budget import Unit
from tidegate.sharing import allowance
from tidegate.sharing.names import Names


async def settled(server: RedisServer, one: Replica, number: str, tokens: int | None) -> None:
    """End a request, and wait until Redis knows."""
    one.allowance.settle(number, tokens, 0)
    await one.until(lambda: not server.do("HEXISTS", "{test}:held", Names("salt").request(number)))


async def test_what_one_replica_let_in_the_others_do_not(server: RedisServer, stack: AsyncExitStack) -> None:
    one, other = await replicas(stack, 2, server.port, per_minute(6, 10))
    assert await one.granted(4) == 4
    assert await other.granted(10) == 6
    refused = (await one.take()).exceeded
    assert refused is not None
    assert (refused.scope, refused.limit) == (SCOPE, per_minute(6, 10))
    assert 9 < refused.wait_seconds <= 10
    assert (one.counts.alone, other.counts.alone) == (0, 0)


async def test_of_a_hundred_parallel_requests_for_most_of_a_limit_one_passes(
    server: RedisServer, stack: AsyncExitStack
) -> None:
    made = await replicas(stack, 3, server.port, per_minute(100, unit=Unit.TOKENS))
    answers = await asyncio.gather(*(made[at % 3].take(tokens=80) for at in range(100)))
    assert sum(answer.exceeded is None for answer in answers) == 1


async def test_all_limits_are_taken_from_or_none(server: RedisServer, stack: AsyncExitStack) -> None:
    limits = {SCOPE: [per_day(10)], "key:k": [in_flight(1)]}
    one = await stack.enter_async_context(Replica(server.port, limits).running())
    ask = (await one.take("r1", scope=SCOPE)).exceeded
    assert ask is None
    assert (await one.take("r2", scope="key:k")).exceeded is None
    both = [await one.granted(1)]
    assert both == [1]
    assert (await one.take(scope="key:k")).exceeded is not None
    assert one.left() == [8]


async def test_a_request_is_settled_by_the_replica_that_hears_of_its_end(
    server: RedisServer, stack: AsyncExitStack
) -> None:
    one, other = await replicas(stack, 2, server.port, per_minute(1000, unit=Unit.TOKENS), in_flight(1))
    assert (await one.take("r1", tokens=900)).exceeded is None
    assert (await other.take("r2", tokens=10)).exceeded is not None
    await settled(server, other, "r1", 100)
    answer = await other.take("r2", tokens=10)
    assert answer.exceeded is None
    assert answer.standing.tokens is not None
    assert answer.standing.tokens.amount == pytest.approx(890, abs=5)
    # It is over: what the first replica hears of it later changes nothing.
    one.allowance.settle("r1", 0, 0)
    assert (await one.take("r3", tokens=0)).exceeded is not None
    assert len(one.allowance) == 0


async def test_more_than_was_reserved_is_owed_and_a_refund_is_no_more_than_was_reserved(
    server: RedisServer, stack: AsyncExitStack
) -> None:
    (one,) = await replicas(stack, 1, server.port, per_day(1000, unit=Unit.TOKENS))
    await one.take("r1", tokens=100)
    await settled(server, one, "r1", 1500)
    await one.until(lambda: one.left() == [0])
    assert (await one.take("r2", tokens=1)).exceeded is not None
    assert await one.granted(1) == 1
    one.allowance.configure({SCOPE: [per_day(3000, unit=Unit.TOKENS)]})
    await one.take("r3", tokens=200)
    for _ in range(3):
        await settled(server, one, "r3", 0)
    answer = await one.take("r4", tokens=1500)
    assert answer.exceeded is None
    assert (await one.take("r5", tokens=1)).exceeded is not None


async def test_what_a_dead_replica_held_comes_back_with_its_leases(server: RedisServer, stack: AsyncExitStack) -> None:
    async with AsyncExitStack() as dying:
        (dead,) = await replicas(dying, 1, server.port, in_flight(2), per_day(2), lease=1.0)
        assert await dead.granted(2) == 2
    (one,) = await replicas(stack, 1, server.port, in_flight(2), per_day(2), lease=1.0)
    assert await one.granted(1) == 0
    await asyncio.sleep(1.1)
    assert await one.granted(2) == 2
    # It is renewed for as long as its replica lives.
    await asyncio.sleep(2.1)
    assert await one.granted(1) == 0


async def test_whoever_hears_of_a_dead_replicas_request_keeps_its_lease(
    server: RedisServer, stack: AsyncExitStack
) -> None:
    async with AsyncExitStack() as dying:
        (dead,) = await replicas(dying, 1, server.port, in_flight(2), lease=1.0)
        assert (await dead.take("heard")).exceeded is None
        assert (await dead.take("silent")).exceeded is None
    (one,) = await replicas(stack, 1, server.port, in_flight(2), lease=1.0)
    for _ in range(3):
        one.allowance.progressed("heard")
        await asyncio.sleep(0.5)
    assert await one.granted(2) == 1


async def test_no_lease_ends_because_nobody_could_reach_redis(server: RedisServer, stack: AsyncExitStack) -> None:
    (one,) = await replicas(stack, 1, server.port, in_flight(1), lease=1.0)
    assert await one.granted(1) == 1
    # As after six seconds in which nobody called; the lease is over by then.
    now = int(server.do("TIME")[0])
    server.do("HSET", "{test}:meta", "last", now - 6)
    server.do("ZADD", "{test}:leases", now - 5, *server.do("ZRANGE", "{test}:leases", 0, -1))
    assert await one.granted(1) == 0


async def test_time_is_that_of_redis_and_not_of_the_replicas(server: RedisServer, stack: AsyncExitStack) -> None:
    limits = {SCOPE: [per_minute(60, 2), per_day(100)]}
    ahead = Replica(server.port, limits, wall=lambda: 4e9)
    behind = Replica(server.port, limits, wall=lambda: 1e9)
    for one in (ahead, behind):
        await stack.enter_async_context(one.running())
    assert [await ahead.granted(1), await behind.granted(1), await ahead.granted(1), await behind.granted(1)] == [
        *(1, 1, 0, 0)
    ]
    assert ahead.left()[1] == behind.left()[1] == 98


async def test_limits_that_change_keep_what_was_used(server: RedisServer, stack: AsyncExitStack) -> None:
    (one,) = await replicas(stack, 1, server.port, per_day(10))
    assert await one.granted(4) == 4
    one.allowance.configure({SCOPE: [per_day(5)]})
    assert await one.granted(4) == 1
    one.allowance.configure({SCOPE: [per_day(7)]})
    assert await one.granted(4) == 2


async def test_names_that_say_more_than_they_should_are_names_like_others(
    server: RedisServer, stack: AsyncExitStack
) -> None:
    hostile = ["tenant:a:b{c}\r\nFLUSHALL", "tenant:" + "x" * 1_000_000, "a", "a:b", "\x00\udcff"]
    limits = {scope: [per_day(1)] for scope in hostile}
    one = await stack.enter_async_context(Replica(server.port, limits).running())
    for at, scope in enumerate(hostile):
        assert (await one.take(f"r{at}\r\nFLUSHALL\udcff" * 9, scope=scope)).exceeded is None
        assert (await one.take(scope=scope)).exceeded is not None
    keys = {key.decode() for key in server.do("KEYS", "*")}
    assert keys == {f"{{test}}:{name}" for name in ("meta", "used", "held", "leases", "replicas")}
    stored = [*server.do("HKEYS", "{test}:used"), *server.do("HKEYS", "{test}:held")]
    assert {len(name) for name in stored} == {32}
    assert len(stored) == 2 * len(hostile)


async def test_requests_that_no_limit_concerns_do_not_ask(server: RedisServer, stack: AsyncExitStack) -> None:
    (one,) = await replicas(stack, 1, server.port, per_day(1))
    calls = len(one.counts.calls)
    coroutine = one.take("free", scope="tenant:other")
    with pytest.raises(StopIteration):
        coroutine.send(None)
    assert len(one.counts.calls) == calls
    settled_as = one.allowance.settle("free", 5, 7)
    assert settled_as is not None
    assert settled_as.used == (5, 7)


async def test_a_request_that_is_cancelled_while_it_asks_holds_nothing(
    server: RedisServer, stack: AsyncExitStack
) -> None:
    (one,) = await replicas(stack, 1, server.port, in_flight(1))
    for turns in range(30):
        asking = asyncio.create_task(one.take(f"r{turns}"))
        for _ in range(turns % 10):
            await asyncio.sleep(0)
        asking.cancel()
        await asyncio.wait({asking})
        one.allowance.release(f"r{turns}")
    await one.until(lambda: server.do("HLEN", "{test}:held") == 0)
    assert await one.granted(2) == 1


async def test_more_than_fits_in_one_call_is_told_in_several_at_once(
    empty: RedisServer, stack: AsyncExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(allowance, "MOST_TOLD", 7)
    monkeypatch.setattr(allowance, "MOST_RENEWED", 7)
    limits = {f"tenant:{number}": [per_day(5), in_flight(5)] for number in range(40)}
    one = await stack.enter_async_context(Replica(empty.port, limits, lease=1.5).running(shared=False))
    for scope in limits:
        assert (await one.take(scope=scope)).exceeded is None
    await one.until(lambda: (empty.do("HLEN", "{test}:held"), empty.do("HLEN", "{test}:used")) == (40, 80))
    await one.until_shared()
    # Their leases are renewed as well.
    await asyncio.sleep(2.0)
    assert empty.do("HLEN", "{test}:held") == 40
    for scope in limits:
        await one.until(lambda scope=scope: one.left(scope) == [4, 4])  # type: ignore[misc]
