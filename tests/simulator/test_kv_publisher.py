"""What a simulated engine publishes is what vLLM does, and Tidegate reads it."""

import asyncio
from array import array
from collections.abc import Iterator

import pytest
import zmq
import zmq.asyncio

from tidegate.engines.kv_events import Cleared, Removed, Stored, decode
from tidegate.simulator.kv_publisher import END_OF_REPLAY, KvPublisher
from tidegate.simulator.prompts import TOKEN_BYTES, ToldBlock, block_keys

IDS = list(range(40))
KEYS = block_keys(array("I", IDS).tobytes(), told=True)


@pytest.fixture
async def publisher() -> Iterator[KvPublisher]:  # type: ignore[misc]
    publisher = KvPublisher("127.0.0.1", 0, 0, "kv@me")
    yield publisher
    publisher.close()


def batches(publisher: KvPublisher) -> list[tuple[int, tuple[object, ...]]]:
    found = [decode(number.to_bytes(8, "big"), payload) for number, payload in publisher._kept]
    return [(batch.number, batch.events) for batch in found]


async def test_blocks_of_a_chain_are_one_event_and_a_step_is_one_batch(publisher: KvPublisher) -> None:
    for key in KEYS:
        publisher.stored(key)
    publisher.removed(KEYS[1])
    publisher.flush()
    publisher.flush()
    publisher.cleared()
    publisher.flush()
    numbers = tuple(int.from_bytes(key[:8], "big") for key in KEYS)
    stored = Stored(numbers, None, tuple(IDS[:32]), 16, "", ((), ()))
    assert batches(publisher) == [(0, (stored, Removed(numbers[1:2]))), (1, (Cleared(),))]


async def test_a_chain_goes_on_from_its_parent(publisher: KvPublisher) -> None:
    publisher.stored(KEYS[1])
    publisher.flush()
    (event,) = batches(publisher)[0][1]
    assert isinstance(event, Stored)
    assert event.parent == int.from_bytes(KEYS[0][:8], "big")


async def test_keys_that_do_not_say_what_is_in_them_are_passed_over(publisher: KvPublisher) -> None:
    publisher.stored(b"x" * 16)
    publisher.removed(b"x" * 16)
    publisher.flush()
    assert batches(publisher) == []


async def test_batches_are_repeated_from_a_number_on(publisher: KvPublisher) -> None:
    for _ in range(3):
        publisher.cleared()
        publisher.flush()
    repeating = asyncio.create_task(publisher.repeat())
    context = zmq.asyncio.Context()
    socket = context.socket(zmq.DEALER)
    try:
        socket.connect(f"tcp://127.0.0.1:{publisher.replay_port}")
        await socket.send_multipart([b"", b"odd"])
        await socket.send_multipart([b"", (1).to_bytes(8, "big")])
        async with asyncio.timeout(10):
            got = [await socket.recv_multipart() for _ in range(3)]
    finally:
        repeating.cancel()
        await asyncio.gather(repeating, return_exceptions=True)
        socket.close(linger=0)
        context.term()
    assert [frames[:3] for frames in got] == [
        [b"", b"kv@me", (1).to_bytes(8, "big")],
        [b"", b"kv@me", (2).to_bytes(8, "big")],
        [b"", b"", END_OF_REPLAY],
    ]


async def test_a_port_that_is_taken_is_an_error(publisher: KvPublisher) -> None:
    with pytest.raises(zmq.ZMQError):
        KvPublisher("127.0.0.1", publisher.port, None)


def test_told_keys_are_the_same_keys() -> None:
    tokens = array("I", IDS).tobytes()
    assert block_keys(tokens) == KEYS
    first, second = KEYS
    assert isinstance(first, ToldBlock)
    assert isinstance(second, ToldBlock)
    assert (first.parent, first.tokens) == (b"", tokens[: 16 * TOKEN_BYTES])
    assert (second.parent, second.tokens) == (first, tokens[16 * TOKEN_BYTES : 32 * TOKEN_BYTES])
