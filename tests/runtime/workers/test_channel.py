"""The stream between two processes: it never waits, and ends rather than grow."""

import asyncio
import socket
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.fleet.declare import reservation
from tidegate.fleet.events import RequestEnded, RequestReserved
from tidegate.runtime.workers import channel as channels
from tidegate.runtime.workers import messages
from tidegate.runtime.workers.channel import Channel


class End:
    """One end of a channel, and what came of it."""

    def __init__(self) -> None:
        self.received: list[Any] = []
        self.closed = asyncio.Event()
        self.count = asyncio.Condition()

    async def join(self, sock: socket.socket, decoder: Any) -> "End":
        self.channel = await Channel.over(sock, decoder, self.received.append, self.closed.set)
        return self

    async def has(self, count: int) -> None:
        async with asyncio.timeout(5):
            while len(self.received) < count:  # noqa: ASYNC110
                await asyncio.sleep(0.001)


@pytest.fixture
async def ends() -> AsyncIterator[tuple[End, End]]:
    one, two = socket.socketpair()
    main, worker = End(), End()
    await main.join(one, messages.from_worker)
    await worker.join(two, messages.to_worker)
    yield main, worker
    for end in (main, worker):
        end.channel.abort()
        await end.closed.wait()


async def test_both_say_what_they_have_to_in_order(ends: tuple[End, End]) -> None:
    main, worker = ends
    said = [messages.Reserved(RequestReserved(reservation(f"r{number}"))) for number in range(500)]
    for message in said:
        worker.channel.send(message)
    main.channel.send(messages.Stop())
    await main.has(500)
    await worker.has(1)
    assert main.received == said
    assert worker.received == [messages.Stop()]


async def test_what_was_sent_before_the_end_arrives(ends: tuple[End, End]) -> None:
    main, worker = ends
    for number in range(1000):
        worker.channel.send(messages.Delivered(f"r{number}"))
    await worker.channel.close()
    await asyncio.wait_for(main.closed.wait(), 5)
    assert len(main.received) == 1000
    worker.channel.send(messages.Ready())  # goes nowhere, and harms nobody


async def test_a_peer_that_does_not_read_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channels, "BACKLOG_BYTES", 100_000)
    one, two = socket.socketpair()
    main = await End().join(one, messages.from_worker)
    with two:  # nobody reads
        for _ in range(20):
            for number in range(1000):
                main.channel.send(messages.Ended(0.0, RequestEnded(f"r{number}")))
            await asyncio.sleep(0)
            if main.closed.is_set():
                break
        await asyncio.wait_for(main.closed.wait(), 5)


@pytest.mark.parametrize("nonsense", [b"\xff\xff\xff\xff", b"\x00\x00\x00\x01\xc1", messages.encode(messages.Stop())])
async def test_a_peer_that_is_not_understood_is_given_up(nonsense: bytes) -> None:
    one, two = socket.socketpair()
    main = await End().join(one, messages.from_worker)
    with two:
        two.sendall(nonsense)
        await asyncio.wait_for(main.closed.wait(), 5)
    assert main.received == []
