"""Streams on which messages only come: each is handed on at once, and none is lost when the server stops."""

import asyncio

import grpc
import grpc.aio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from extproc import h2_inflow, h2_transport
from extproc.h2_framing import framed
from extproc.h2_inflow import Reader
from extproc.h2_transport import serving
from extproc.transport import Status
from tests.extproc.desks import FakeDesk
from tests.extproc.envoy_model import body_message, headers_message
from tests.extproc.h2_client import Counts, Peer, served
from tests.extproc.test_grpc_transport import HoldingDesk
from xds import access_log

LOG = "/a.Log/Stream"
CANCEL = 8


class Taken:
    """What each stream's reader was given."""

    def __init__(self) -> None:
        self.streams: list[list[bytes]] = []

    def reader(self) -> Reader:
        self.streams.append([])
        return self.streams[-1].append

    @property
    def inflows(self) -> h2_transport.Inflows:
        return {LOG: self.reader}


async def test_each_message_is_handed_on_in_the_turn_that_completes_it() -> None:
    taken = Taken()
    async with served(FakeDesk(), Counts(), taken.inflows) as server:
        peer = Peer(server)
        stream = peer.open(LOG)
        peer.message(stream, b"one")
        peer.engine.send_data(stream, framed(b"two")[:6])
        peer.connection.data_received(peer.outgoing())
        assert (taken.streams, server.held, server.streams) == ([[b"one"]], 6, 1)
        peer.engine.send_data(stream, framed(b"two")[6:] + framed(b"three"))
        peer.connection.data_received(peer.outgoing())
        assert (taken.streams, server.held) == ([[b"one", b"two", b"three"]], 0)


async def test_streams_have_readers_of_their_own() -> None:
    taken = Taken()
    async with served(FakeDesk(), Counts(), taken.inflows) as server:
        peer = Peer(server)
        for name in (b"a", b"b"):
            peer.message(peer.open(LOG), name)
        await peer.turn()
        assert taken.streams == [[b"a"], [b"b"]]


async def test_a_peer_that_ends_its_side_is_answered_with_one_empty_message() -> None:
    taken = Taken()
    async with served(FakeDesk(), Counts(), taken.inflows) as server:
        peer = Peer(server)
        stream = peer.open(LOG)
        peer.message(stream, b"last", end=True)
        await peer.turn()
        answer = peer.answers[stream]
        assert (answer.messages, answer.status, answer.ended) == ([b""], Status.OK, True)
        assert (taken.streams, server.streams) == ([[b"last"]], 0)


async def test_grpcs_client_sees_no_difference() -> None:
    taken = Taken()
    async with (
        asyncio.timeout(20),
        serving("127.0.0.1", 0, FakeDesk(), Counts(), taken.inflows, max_body_bytes=1024, grace=0.2) as port,
        grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel,
    ):
        method: grpc.aio.StreamUnaryMultiCallable[bytes, bytes] = channel.stream_unary(LOG)
        messages = [b"", b"x" * 2_000_000, *(b"%d" % number for number in range(3_000))]
        assert await method(iter(messages)) == b""
    assert taken.streams == [messages]


async def test_what_is_sent_until_the_peer_has_heard_of_the_stop_is_not_lost() -> None:
    taken = Taken()
    async with served(FakeDesk(), Counts(), taken.inflows) as server:
        peer = Peer(server)
        stream = peer.open(LOG)
        peer.message(stream, b"before")
        await peer.turn()
        draining = asyncio.create_task(server.drain(5))
        await asyncio.sleep(0)
        peer.message(stream, b"meanwhile")
        await asyncio.sleep(0.05)
        peer.connection.data_received(peer.outgoing())
        await peer.turn()
        assert (peer.answers[stream].status, peer.answers[stream].ended) == (Status.UNAVAILABLE, True)
        assert peer.answers[stream].reset is None
        assert not draining.done()
        # As Envoy does: what it had written goes before the reset, in the same segment.
        peer.message(stream, b"last")
        peer.engine.reset_stream(stream, CANCEL)
        await peer.turn()
        assert taken.streams == [[b"before", b"meanwhile", b"last"]]
        assert peer.wire.closing
        peer.drop()
        await asyncio.wait_for(draining, 1)


async def test_a_peer_that_ends_its_side_after_the_stop_was_said_ends_the_stream() -> None:
    taken = Taken()
    async with served(FakeDesk(), Counts(), taken.inflows) as server:
        peer = Peer(server)
        stream = peer.open(LOG)
        await peer.turn()
        draining = asyncio.create_task(server.drain(5))
        await asyncio.sleep(0.05)
        await peer.turn()
        peer.message(stream, b"last", end=True)
        await peer.turn()
        assert (taken.streams, server.streams, peer.wire.closing) == ([[b"last"]], 0, True)
        peer.drop()
        await asyncio.wait_for(draining, 1)


async def test_a_peer_that_does_not_hear_of_the_stop_is_cut_off_in_the_end() -> None:
    taken = Taken()
    async with served(FakeDesk(), Counts(), taken.inflows) as server:
        peer = Peer(server)
        stream = peer.open(LOG)
        await peer.turn()
        await server.drain(0.05)
        await peer.turn()
        assert (peer.wire.closing, peer.wire.aborted, server.streams) == (True, False, 0)
        assert peer.answers[stream].status == Status.UNAVAILABLE


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(h2_transport, "LAST_MESSAGES_SECONDS", 0.03)


async def test_inflows_are_read_for_a_while_after_the_last_exchange_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(h2_transport, "LAST_MESSAGES_SECONDS", 0.2)
    taken, desk = Taken(), HoldingDesk()
    async with served(desk, Counts(), taken.inflows) as server:
        peer, asking = Peer(server), Peer(server)
        log, request = peer.open(LOG), asking.open()
        await peer.turn()
        asking.message(request, headers_message())
        await asking.turn()
        asking.message(request, body_message())
        await asking.turn()
        await desk.holding.wait()
        draining = asyncio.create_task(server.drain(5))
        await asyncio.sleep(0.3)
        await peer.turn()
        assert not peer.answers[log].ended
        asking.engine.reset_stream(request, CANCEL)
        await asking.turn()
        asking.drop()
        await peer.turn()
        assert not peer.answers[log].ended
        await asyncio.sleep(0.3)
        await peer.turn()
        assert peer.answers[log].ended
        peer.drop()
        await asyncio.wait_for(draining, 1)


@pytest.mark.parametrize(
    ("start", "status"),
    [(b"\x01\x00\x00\x00\x00", Status.UNIMPLEMENTED), (b"\x00\x7f\x00\x00\x00", Status.RESOURCE_EXHAUSTED)],
)
async def test_a_message_that_is_not_taken_ends_its_stream_alone(start: bytes, status: Status) -> None:
    taken = Taken()
    async with served(FakeDesk(), Counts(), taken.inflows) as server:
        peer = Peer(server)
        bad, good = peer.open(LOG), peer.open(LOG)
        peer.engine.send_data(bad, start)
        peer.message(good, b"fine")
        await peer.turn()
        assert peer.answers[bad].status == status
        assert (taken.streams, server.streams) == ([[], [b"fine"]], 1)


async def test_bytes_over_the_common_limit_end_the_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(h2_transport, "HELD_BYTES", 1_000)
    async with served(FakeDesk(), Counts(), Taken().inflows) as server:
        peer = Peer(server)
        stream = peer.open(LOG)
        peer.engine.send_data(stream, framed(b"x" * 4_000)[:2_000])
        await peer.turn()
        assert (peer.answers[stream].status, server.held) == (Status.RESOURCE_EXHAUSTED, 0)


async def test_streams_that_last_count_against_the_limit_until_they_are_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(h2_transport, "STREAMS", 1)
    async with served(FakeDesk(), Counts(), Taken().inflows) as server:
        peer = Peer(server)
        first, second = peer.open(LOG), peer.open(LOG)
        await peer.turn()
        assert [peer.answers[stream].reset for stream in (first, second)] == [None, 7]
        peer.engine.reset_stream(first, CANCEL)
        third = peer.open(LOG)
        await peer.turn()
        assert (peer.answers[third].reset, server.streams) == (None, 1)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.binary(max_size=40), min_size=1, max_size=12), st.lists(st.integers(1, 60), min_size=1, max_size=40))
def test_messages_are_the_same_in_any_chunking(messages: list[bytes], cuts: list[int]) -> None:
    async def run() -> None:
        taken = Taken()
        async with served(FakeDesk(), Counts(), taken.inflows) as server:
            peer = Peer(server)
            stream = peer.open(LOG)
            data = b"".join(map(framed, messages))
            for cut in [*cuts, len(data)]:
                if data:
                    peer.engine.send_data(stream, data[:cut])
                    data = data[cut:]
                    await peer.turn(1)
            assert taken.streams == [messages]

    asyncio.run(run())


def test_the_largest_batch_of_envoys_is_below_the_limit() -> None:
    assert h2_inflow.MESSAGE_BYTES > 2 * access_log.BUFFER_BYTES
