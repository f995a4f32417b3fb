"""What is made of odd answers, by a link that a test holds in its hands."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, suppress

import pytest

from tests.ports import free_port
from tests.sharing.redis_server import HERE
from tests.sharing.replica import SCOPE, Counts, Replica, per_day
from tidegate.scheduling.allowance import Ask
from tidegate.scheduling.budget import Cost
from tidegate.sharing.allowance import SharedAllowance
from tidegate.sharing.contracts import Times
from tidegate.sharing.errors import LinkError
from tidegate.sharing.names import Names

Answer = Callable[[Sequence[str | bytes]], object]


class Scripted:
    """A link, and the Redis behind it: it grants whatever is asked."""

    def __init__(self) -> None:
        self.clock = time.time
        self.answer: Answer = self.well
        self.asked: list[list[list[object]]] = []
        self.opened = 0

    async def open(self) -> None:
        self.opened += 1

    async def close(self) -> None:
        pass

    async def call(self, arguments: Sequence[str | bytes]) -> object:
        await asyncio.sleep(0)
        self.asked.append(json.loads(arguments[5]))
        return self.answer(arguments)

    def well(self, arguments: Sequence[str | bytes]) -> object:
        _, epoch, _, not_after, *_ = arguments
        now = self.clock()
        if 0 < float(not_after) < now:
            return [b"late", b"e", b"0", str(now), b"0", b"0"]
        state = "ok" if epoch == "e" else "epoch"
        results = ["1 1" if operation[0] == "reserve" else "" for operation in self.asked[-1]]
        return [state, "e", "100", str(now), "1", "1", *(results if state == "ok" else ())]


class Fixture:
    def __init__(self) -> None:
        self.link = Scripted()
        self.counts = Counts()
        times = Times(2.0, 2.0, 30.0)
        self.allowance = SharedAllowance(lambda: self.link, times, Names("salt"), self.counts, time.time)
        self._number = 0

    async def asks(self) -> bool:
        """Return whether a request is let in by Redis, and not by the share."""
        self._number += 1
        alone = self.counts.alone
        answer = await self.allowance.take(Ask(f"r{self._number}", "acme", (SCOPE,), Cost(0, 0)))
        assert answer.exceeded is None
        return self.counts.alone == alone

    async def until_shared(self) -> None:
        async with asyncio.timeout(5):
            while not self.allowance.state().is_shared:  # noqa: ASYNC110  nobody says so
                await asyncio.sleep(0.005)


@pytest.fixture
async def made() -> AsyncIterator[Fixture]:
    made = Fixture()
    made.allowance.configure({SCOPE: [per_day(1000)]})
    running = asyncio.create_task(made.allowance.run())
    await made.until_shared()
    yield made
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running


async def test_a_clock_of_redis_that_is_set_costs_one_call(made: Fixture) -> None:
    assert await made.asks()
    made.link.clock = lambda: time.time() + 3600
    assert not await made.asks()
    assert await made.asks()
    made.link.clock = time.time
    assert await made.asks()
    assert made.counts.failures() == []


@pytest.mark.parametrize(
    "answer",
    [
        None,
        [],
        [b"ok"],
        ["ok", "e", "100", "soon", "1", "1", "1 1"],
        ["ok", "e", "100", "NOW", "1", "1", "1 1", "1 1", "1 1"],
        ["ok", "e", "100", "NOW", "1", "1", "1 1 1"],
        ["ok", "e", "100", "NOW", "1", "1", "gibberish"],
    ],
)
async def test_an_answer_that_cannot_be_read_lets_nobody_wait(made: Fixture, answer: list[object] | None) -> None:
    now = str(time.time())
    made.link.answer = lambda _: answer if answer is None else [now if word == "NOW" else word for word in answer]
    assert not await made.asks()
    made.link.answer = made.link.well
    await made.until_shared()
    assert await made.asks()
    # What the first may have taken is told as what it holds, and once.
    told = [one for batch in made.link.asked for one in batch if one[0] == "tell"]
    assert [len(requests) for _, _, _, requests in told] == [1]  # type: ignore[arg-type]


async def test_all_who_wait_are_told_at_once_when_a_call_fails(made: Fixture) -> None:
    def fails(_: object) -> object:
        raise LinkError("no connection")

    made.link.answer = fails
    answers = await asyncio.wait_for(asyncio.gather(*(made.asks() for _ in range(50))), 1.0)
    assert not any(answers)
    assert made.counts.alone == 50


async def test_what_comes_while_a_call_is_under_way_goes_with_the_next(made: Fixture) -> None:
    calls = len(made.link.asked)
    assert all(await asyncio.gather(*(made.asks() for _ in range(200))))
    assert len(made.link.asked) - calls <= 4


@pytest.mark.parametrize(
    "said", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\x00\xff" * 50 + b"\r\n", b"*-7\r\n", b":1\r\n", b""]
)
async def test_what_is_no_redis_is_treated_as_none(said: bytes) -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(10)
        writer.write(said)
        with suppress(ConnectionError):
            await writer.drain()
        writer.close()

    port = free_port()
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(await asyncio.start_server(talk, HERE, port))
        one = await stack.enter_async_context(Replica(port, {SCOPE: [per_day(4)]}, replicas=2).running(shared=False))
        await one.until(lambda: len(one.counts.failures()) > 3)
        assert await one.granted(4) == 2
