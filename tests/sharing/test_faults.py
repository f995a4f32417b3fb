"""What goes wrong with a real Redis: limits hold, nobody waits long, nobody is shut out, and the return is smooth."""

import asyncio
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from tests.at_once import at_once
from tests.sharing.redis_server import RedisServer, redis_server
from tests.sharing.replica import SCOPE, Replica, in_flight, per_day, per_minute, replicas
from tidegate.scheduling.allowance import Ask
from tidegate.scheduling.budget import Cost, Unit

REPLICAS, DAY = 3, 30
SHARE = DAY // REPLICAS

Act = Callable[[RedisServer], object]


def follow_nobody(server: RedisServer) -> None:
    """Make it a replica, of a master that is not there."""
    server.do("REPLICAOF", "127.0.0.1", 1)


def fill(server: RedisServer) -> None:
    server.do("CONFIG", "SET", "maxmemory", 1)


FAULTS: dict[str, tuple[Act, Act, str]] = {
    "frozen": (RedisServer.freeze, RedisServer.thaw, "timeout"),
    "asleep": (lambda server: server.sleep(3.0), lambda _: None, "timeout"),
    "read-only": (follow_nobody, lambda server: server.do("REPLICAOF", "NO", "ONE"), "read-only"),
    "full": (fill, lambda server: server.do("CONFIG", "SET", "maxmemory", 0), "out of memory"),
}


@pytest.mark.parametrize("fault", FAULTS)
async def test_each_replica_keeps_its_share_while_redis_does_not_answer_and_tells_it_afterwards(
    fault: str, server: RedisServer, stack: AsyncExitStack, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "tidegate.redis")
    wrong, right, reason = FAULTS[fault]
    made = await replicas(stack, REPLICAS, server.port, per_day(DAY), in_flight(100), call=0.05)
    assert [await one.granted(4) for one in made] == [4, 4, 4]
    await all_see(made, DAY - 12)
    wrong(server)
    began = time.monotonic()
    assert (await made[0].take()).exceeded is None
    assert time.monotonic() - began < 0.5
    for one in made:
        await one.until_alone()
        assert reason in {*one.counts.failures()}
    # Nobody waits any more; what was used is used, and what is left of the share can be had.
    assert [sum(alone(one) for _ in range(SHARE)) for one in made] == [SHARE - 5, SHARE - 4, SHARE - 4]
    assert made[0].counts.alone >= SHARE + 1
    right(server)
    for one in made:
        await one.until_shared()
    # All three have told, at the latest a second after they could: nothing is left for anybody.
    await asyncio.sleep(0.1)
    assert [await one.granted(3) for one in made] == [0, 0, 0]
    await made[0].until(lambda: made[0].left() == [0, 100 - DAY])
    said = [record.getMessage() for record in caplog.records]
    assert any("divided" in line and reason in line for line in said)
    assert any("shared through Redis" in line for line in said)


async def all_see(made: list[Replica], left: int) -> None:
    """Wait until each replica has seen how much is left of the first limit."""
    for one in made:
        await one.until(lambda one=one: one.left()[0] == left)  # type: ignore[misc]


def alone(one: Replica) -> bool:
    """Return whether a request may pass, which nobody is asked about."""
    number = f"alone {id(one)} {one.counts.alone}"
    return at_once(one.allowance.take(Ask(number, "acme", (SCOPE,), Cost(1, 1)))).exceeded is None


async def test_a_redis_that_lost_everything_is_told_again(server: RedisServer, stack: AsyncExitStack) -> None:
    made = await replicas(stack, REPLICAS, server.port, per_day(DAY), in_flight(DAY))
    assert [await one.granted(8) for one in made] == [8, 8, 8]
    server.do("FLUSHALL")
    # Each finds out on its next call, and keeps its share until all had the time to tell what they know.
    assert sum([await one.granted(8) for one in made]) <= DAY - 24
    assert await counted(made, 0.6) == 0
    for one in made:
        await one.until_shared()
        assert one.counts.losses == 1
    assert await counted(made, 0.3) == 0
    assert server.do("HLEN", "{test}:held") == sum(len(one.allowance) for one in made) == DAY


async def counted(made: list[Replica], seconds: float) -> int:
    """Return how many more requests are let in."""
    granted, until = 0, time.monotonic() + seconds
    while time.monotonic() < until:
        granted += sum([await one.granted(2) for one in made])
        await asyncio.sleep(0.02)
    return granted


async def test_a_redis_that_was_killed_and_begins_anew_is_told_again(
    server: RedisServer, stack: AsyncExitStack
) -> None:
    made = await replicas(stack, REPLICAS, server.port, per_day(DAY))
    assert await made[0].granted(12) == 12
    await all_see(made, DAY - 12)
    server.kill()
    # The connection is found closed at once. What was left is shared out, whoever used the rest.
    assert [await one.granted(12) for one in made] == [6, 6, 6]
    server.begin()
    for one in made:
        await one.until_shared()
    assert [await one.granted(3) for one in made] == [0, 0, 0]


async def test_a_redis_that_came_back_with_an_old_memory_is_told_again(
    server: RedisServer, stack: AsyncExitStack
) -> None:
    made = await replicas(stack, REPLICAS, server.port, per_day(DAY), in_flight(DAY))
    assert [await one.granted(2) for one in made] == [2, 2, 2]
    old = {key: server.do("DUMP", key) for key in server.do("KEYS", "*")}
    assert [await one.granted(8) for one in made] == [8, 8, 8]
    server.do("FLUSHALL")
    for key, value in old.items():
        server.do("RESTORE", key, 0, value)
    assert await counted(made, 0.6) == 0
    for one in made:
        await one.until_shared()
        assert one.counts.losses == 1
    assert await counted(made, 0.3) == 0
    assert server.do("HLEN", "{test}:held") == DAY


async def test_two_halves_that_are_one_again_add_up_what_they_used(
    server: RedisServer, stack: AsyncExitStack, tmp_path: Path
) -> None:
    (folder := tmp_path / "other").mkdir()
    with redis_server(folder) as other:
        other.do("REPLICAOF", "127.0.0.1", server.port)
        one, far = await replicas(stack, 2, server.port, per_day(DAY))
        assert await far.granted(2) == 2
        await far.until(lambda: other.do("HGET", "{test}:meta", "epoch") == b"long ago")
        # The network parts: another Redis is made the master of one half.
        other.do("REPLICAOF", "NO", "ONE")
        far.place = far.place._replace(port=other.port)
        server.do("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        await far.until(lambda: far.counts.failures() != [])
        for half in (one, far):
            await half.until_shared()
        assert [await one.granted(10), await far.granted(10)] == [10, 10]
        # It is one again, and what the other Redis knew is gone.
        far.place = far.place._replace(port=server.port)
    await far.until(lambda: far.counts.losses == 1)
    for half in (one, far):
        await half.until_shared()
    granted = await counted([one, far], 0.4)
    assert granted == DAY - 22
    assert one.left() == far.left() == [0]


async def test_a_script_that_redis_forgot_is_given_again(server: RedisServer, stack: AsyncExitStack) -> None:
    (one,) = await replicas(stack, 1, server.port, per_day(10))
    for _ in range(3):
        server.do("SCRIPT", "FLUSH")
        assert await one.granted(2) == 2
    assert (one.counts.alone, one.counts.failures()) == (0, [])


async def test_no_script_command_is_needed(tmp_path: Path, stack: AsyncExitStack) -> None:
    with redis_server(tmp_path, "--rename-command", "SCRIPT", "") as server:
        server.do("HSET", "{test}:meta", "epoch", "long ago", "began", 0)
        (one,) = await replicas(stack, 1, server.port, per_day(10))
        assert await one.granted(12) == 10


async def test_what_a_frozen_redis_was_asked_is_not_done_when_it_thaws(
    server: RedisServer, stack: AsyncExitStack
) -> None:
    (one,) = await replicas(stack, 1, server.port, in_flight(5), call=0.02)
    server.freeze()
    answers = await asyncio.gather(*(one.take(f"r{number}") for number in range(5)))
    assert all(answer.exceeded is None for answer in answers)
    for number in range(5):
        one.allowance.settle(f"r{number}", 0, 0)
    await asyncio.sleep(0.5)
    server.thaw()
    await one.until_shared()
    assert server.do("HLEN", "{test}:held") == 0
    assert await one.granted(6) == 5


async def test_a_long_absence_is_not_owed_all_at_once(server: RedisServer, stack: AsyncExitStack) -> None:
    (one,) = await replicas(stack, 1, server.port, per_minute(6000, 10), call=0.02)
    server.freeze()
    await one.take()
    await one.until_alone()
    granted = 0
    for _ in range(30):
        await asyncio.sleep(0.02)
        granted += sum(alone(one) for _ in range(3))
    # A bucket of 10 gave far more than that; what is still used of it is what is owed.
    assert granted > 20
    await asyncio.sleep(0.15)
    server.thaw()
    await one.until_shared()
    assert await one.granted(3) == 3


async def test_a_request_larger_than_a_share_passes_when_nothing_of_it_is_used(
    server: RedisServer, stack: AsyncExitStack
) -> None:
    made = await replicas(stack, 3, server.port, per_day(300, unit=Unit.TOKENS), call=0.02)
    server.freeze()
    await asyncio.gather(*(one.take(tokens=1) for one in made[1:]))
    for one in made:
        await one.until_alone()
    assert (await made[0].take(tokens=250)).exceeded is None
    assert (await made[0].take(tokens=1)).exceeded is not None
    refused = (await made[1].take(tokens=250)).exceeded
    assert refused is not None
    assert refused.wait_seconds < 90_000
    never = (await made[1].take(tokens=301)).exceeded
    assert never is not None
    assert never.wait_seconds == float("inf")
    server.thaw()


async def test_a_redis_that_was_never_there_divides_by_what_is_configured(stack: AsyncExitStack) -> None:
    one = await stack.enter_async_context(Replica(1, {SCOPE: [per_day(10)]}, replicas=5).running(shared=False))
    assert await one.granted(4) == 2
    state = one.allowance.state()
    assert (state.is_shared, state.replicas, state.parts) == (False, 0, 5)
    await one.until(lambda: state.reason != one.allowance.state().reason)


async def test_it_is_asked_ever_more_rarely_while_it_fails(stack: AsyncExitStack) -> None:
    one = await stack.enter_async_context(Replica(1, {SCOPE: [per_day(10)]}).running(shared=False))
    await asyncio.sleep(1.0)
    assert 4 <= len(one.counts.calls) <= 8
    assert {*one.counts.failures()} == {"no connection"}


async def test_replicas_that_are_gone_are_not_counted_for_long(server: RedisServer, stack: AsyncExitStack) -> None:
    async with AsyncExitStack() as others:
        await replicas(others, 3, server.port, per_day(10))
    (one,) = await replicas(stack, 1, server.port, per_day(10))
    assert one.allowance.state().parts == 1
