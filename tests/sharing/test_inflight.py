"""Replicas on one Redis see what the others have in flight, at once and no longer than it is so."""

import asyncio
import time
from collections.abc import Callable
from contextlib import AsyncExitStack

import pytest

from tests.configurations import parsed
from tests.fleet.declare import A, B, C, fleet_of, pool, reservation
from tests.sharing.redis_server import RedisServer
from tests.sharing.replica import SCOPE, Replica, per_day
from tidegate.fleet.events import FleetEvent, OthersReported, RequestEnded, RequestReserved
from tidegate.runtime.part import Surroundings
from tidegate.runtime.shared_inflight import SharedInflight
from tidegate.sharing import inflight
from tidegate.telemetry.metrics import Metrics

SECONDS = 0.05
LEASE = 1.0
KEY = "{test}:inflight"
GAUGE = "tidegate_redis_others_requests"
CONFIG = parsed({"pools": [{"name": "default", "endpoints": [{"address": A}]}]})


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have what nobody says again be forgotten sooner: the tests wait for that."""
    monkeypatch.setattr(inflight, "LEASE_SECONDS", LEASE)


class Plane:
    """A replica with a fleet."""

    def __init__(self, port: int, **more: float) -> None:
        self.replica = Replica(port, {SCOPE: [per_day(100)]}, **more)  # type: ignore[arg-type]
        self.fleet = fleet_of(pool(A, B, C))
        self.metrics = Metrics(tuple, int)
        self.heard = 0
        surroundings = Surroundings(self.fleet, self._apply, self.metrics, CONFIG, lambda: None)
        SharedInflight(surroundings, self.replica.allowance, SECONDS)

    def _apply(self, event: FleetEvent) -> None:
        assert isinstance(event, OthersReported)
        self.heard += 1
        self.fleet.apply(event, time.monotonic())

    def sends(self, number: int, address: str) -> None:
        """Have so many requests in flight there."""
        for _ in range(number):
            one = reservation(f"{id(self)} {len(self.fleet.ledger)}", address=address)
            self.fleet.apply(RequestReserved(one), time.monotonic())

    def ends(self) -> None:
        for one in list(self.fleet.ledger):
            self.fleet.apply(RequestEnded(one.id), time.monotonic())

    def seen(self) -> list[float]:
        """Return the requests that seem to be at each endpoint."""
        return [endpoint.requests for endpoint in self.fleet.view("default", time.monotonic()).endpoints]

    async def sees(self, *requests: float) -> None:
        await self.replica.until(lambda: self.seen() == [*requests])

    def gauge(self) -> float | None:
        return self.metrics.registry.get_sample_value(GAUGE)


async def planes(stack: AsyncExitStack, number: int, server: RedisServer, **more: float) -> list[Plane]:
    made = [Plane(server.port, **more) for _ in range(number)]
    for one in made:
        await stack.enter_async_context(one.replica.running())
    return made


async def test_each_sees_what_all_have_in_flight_and_counts_its_own_once(
    server: RedisServer, stack: AsyncExitStack
) -> None:
    one, two, three = await planes(stack, 3, server)
    one.sends(3, A)
    two.sends(2, A)
    two.sends(1, B)
    for plane in (one, two, three):
        await plane.sees(5, 1, 0)
    assert [plane.gauge() for plane in (one, two, three)] == [3.0, 3.0, 6.0]
    two.ends()
    for plane in (one, two, three):
        await plane.sees(3, 0, 0)
    assert [plane.gauge() for plane in (one, two, three)] == [0.0, 3.0, 3.0]
    assert server.do("HLEN", KEY) == 1


async def test_what_a_replica_that_is_no_more_had_in_flight_is_forgotten_soon(
    server: RedisServer, stack: AsyncExitStack
) -> None:
    (one,) = await planes(stack, 1, server)
    other = Plane(server.port)
    async with other.replica.running():
        other.sends(4, B)
        await one.sees(0, 4, 0)
    # What it sent goes on for a while, whether it was killed or left; then nobody knows.
    await one.sees(0, 0, 0)
    assert server.do("HLEN", KEY) == 0
    assert one.replica.counts.failures() == []


def follow_nobody(server: RedisServer) -> None:
    server.do("REPLICAOF", "127.0.0.1", 1)


Act = Callable[[RedisServer], object]
FAULTS: dict[str, tuple[Act, Act]] = {
    "frozen": (RedisServer.freeze, RedisServer.thaw),
    "read-only": (follow_nobody, lambda server: server.do("REPLICAOF", "NO", "ONE")),
    "killed": (RedisServer.kill, RedisServer.begin),
}


@pytest.mark.parametrize("fault", FAULTS)
async def test_while_redis_does_not_answer_nothing_is_known_of_others_and_then_all_is_again(
    fault: str, server: RedisServer, stack: AsyncExitStack
) -> None:
    wrong, right = FAULTS[fault]
    made = await planes(stack, 3, server, call=0.1)
    for at, plane in enumerate(made):
        plane.sends(at + 1, C)
    for plane in made:
        await plane.sees(0, 0, 6)
    wrong(server)
    for at, plane in enumerate(made):
        await plane.replica.until_alone()
        await plane.sees(0, 0, at + 1)
        assert plane.gauge() == 0.0
    right(server)
    for plane in made:
        await plane.sees(0, 0, 6)


async def test_a_redis_that_lost_everything_knows_it_again(server: RedisServer, stack: AsyncExitStack) -> None:
    one, two = await planes(stack, 2, server)
    one.sends(2, A)
    await two.sees(2, 0, 0)
    server.do("FLUSHALL")
    heard = two.heard
    await two.replica.until(lambda: two.replica.counts.losses == 1 and two.heard > heard + 1)
    await two.sees(2, 0, 0)
    assert two.replica.counts.failures() == []


async def test_what_others_put_there_does_no_harm(server: RedisServer, stack: AsyncExitStack) -> None:
    one, two = await planes(stack, 2, server)
    one.sends(2, A)
    now = time.time()
    odd = {"clock": f"{now + 3600} AAAA", "none": "", "words": "a b c", "text": "soon AAAA", "half": f"{now:.6f} AAAA"}
    for replica, written in odd.items():
        server.do("HSET", KEY, replica, written)
    await two.sees(2, 0, 0)
    await two.replica.until(lambda: server.do("HLEN", KEY) == 1)
    assert (await two.replica.take()).exceeded is None
    assert [*one.replica.counts.failures(), *two.replica.counts.failures()] == []


async def test_what_is_read_is_bounded(
    server: RedisServer, stack: AsyncExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A word of one endpoint has 32 characters.
    monkeypatch.setattr(inflight, "MOST_CHARACTERS", 2 * 32)
    (one,) = await planes(stack, 1, server)
    for _ in range(5):
        (other,) = await planes(stack, 1, server)
        other.sends(1, A)
    await one.replica.until(lambda: one.gauge() == 2.0)
    heard = one.heard
    await one.replica.until(lambda: one.heard > heard + 3)
    assert one.seen() == [2, 0, 0]


async def test_nothing_in_redis_names_an_endpoint(server: RedisServer, stack: AsyncExitStack) -> None:
    one, two = await planes(stack, 2, server)
    one.sends(1, A)
    await two.sees(1, 0, 0)
    (told,) = server.do("HVALS", KEY)
    assert A.encode() not in told
    assert A.partition(":")[0].encode() not in told
    assert 0 < server.do("TTL", KEY) <= 60


async def test_one_call_for_each_period_is_all_that_it_takes(server: RedisServer, stack: AsyncExitStack) -> None:
    (one,) = await planes(stack, 1, server)
    one.sends(1, A)
    calls, began = len(one.replica.counts.calls), time.monotonic()
    await asyncio.sleep(0.5)
    periods = (time.monotonic() - began) / SECONDS
    assert len(one.replica.counts.calls) - calls <= periods + 2 + 5 * (time.monotonic() - began)
