"""The h2 transport against input that no peer of good will sends, and against good input in every cut."""

import asyncio
import itertools

from hpack import Encoder
from hyperframe import frame as frames
from hypothesis import given, settings
from hypothesis import strategies as st

from extproc.transport import Outcome
from tests.extproc.desks import FakeDesk
from tests.extproc.envoy_model import POST, body_message, headers_message
from tests.extproc.h2_client import HEALTH, PROCESS, Answer, Counts, Peer, kinds, served

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


def script(peer: Peer) -> bytes:
    """Return the bytes of a client that does a little of everything."""
    one, two, health, gone = peer.open(), peer.open(), peer.open(HEALTH, x="y" * 20_000), peer.open()
    peer.message(one, headers_message())
    peer.message(gone, headers_message())
    peer.message(two, headers_message({**POST, ":path": "/nowhere"}))
    peer.message(health, b"", end=True)
    peer.engine.reset_stream(gone, 8)
    peer.engine.ping(b"12345678")
    body = body_message()
    peer.engine.send_data(one, b"\x00" + len(body).to_bytes(4, "big") + body[:20], pad_length=7)
    peer.engine.send_data(one, body[20:])
    return peer.outgoing()


def told(answer: Answer) -> tuple[object, ...]:
    return (answer.headers, kinds(answer) if len(answer.messages) != 1 else answer.messages, answer.trailers)


async def replies(cuts: list[int]) -> list[tuple[object, ...]]:
    desk = FakeDesk()
    async with served(desk, Counts()) as server:
        peer = Peer(server)
        sent = script(peer)
        edges = [0, *sorted(cut % len(sent) for cut in cuts), len(sent)]
        for start, end in itertools.pairwise(edges):
            if end > start:
                peer.connection.data_received(sent[start:end])
                await asyncio.sleep(0)
        await peer.turn(20)
        assert (peer.pings, desk.live) == (1, {"r1"})
        return [told(answer) for number, answer in peer.answers.items() if number != 7]


WHOLE = asyncio.run(replies([]))


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(0, 100_000), max_size=30))
def test_the_same_bytes_in_any_pieces_have_the_same_replies(cuts: list[int]) -> None:
    assert asyncio.run(replies(cuts)) == WHOLE


def test_the_same_bytes_one_at_a_time_have_the_same_replies() -> None:
    assert asyncio.run(replies(list(range(30_000)))) == WHOLE


HEADERS = bytes.fromhex("838644")  # POST, http, and :path as a literal
BLOCKS = st.one_of(st.binary(max_size=60), st.just(b""), st.binary(max_size=20).map(lambda tail: HEADERS + tail))
FLAGS = st.integers(0, 255)
STREAM = st.integers(0, 9)


def raw_frame(kind: int, flags: int, stream_id: int, body: bytes) -> bytes:
    return len(body).to_bytes(3, "big") + bytes([kind, flags]) + stream_id.to_bytes(4, "big") + body


def good_headers(stream_id: int) -> bytes:
    fields = [(":method", "POST"), (":scheme", "http"), (":path", PROCESS), ("content-type", "application/grpc")]
    return raw_frame(1, 4, stream_id, Encoder().encode(fields))


FRAMES = st.one_of(
    st.builds(raw_frame, st.integers(0, 12), FLAGS, STREAM, BLOCKS),
    st.builds(lambda number: good_headers(2 * number + 1), st.integers(0, 5)),
    st.builds(lambda number, body: raw_frame(0, 0, 2 * number + 1, body), st.integers(0, 5), st.binary(max_size=60)),
    st.builds(lambda number: raw_frame(3, 0, 2 * number + 1, b"\0\0\0\x08"), st.integers(0, 5)),
    st.builds(lambda by: frames.WindowUpdateFrame(0, window_increment=by).serialize(), st.integers(1, 2**31 - 1)),
    st.builds(
        lambda key, value: frames.SettingsFrame(0, settings={key: value}).serialize(),
        st.integers(0, 9),
        st.integers(0, 2**32 - 1),
    ),
    st.just(raw_frame(7, 0, 0, b"\0" * 8)),
    st.binary(max_size=40),
)


async def survive(pieces: list[bytes]) -> None:
    """Feed ``pieces``; whatever they are, the server lives, and another peer is served."""
    desk, counts = FakeDesk(), Counts()
    async with served(desk, counts) as server:
        peer, other = Peer(server), Peer(server)
        for piece in pieces:
            if not peer.wire.closing:
                peer.connection.data_received(piece)
                await asyncio.sleep(0)
        stream = other.open(HEALTH)
        other.message(stream, b"", end=True)
        await other.turn()
        assert other.answers[stream].status == 0
        peer.drop()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert (server.streams, server.held, server.connections) == (0, 0, 1)
        assert len(desk.live) <= counts.ended.count(Outcome.FINISHED), "a reservation that is nobody's"


@settings(max_examples=120, deadline=None)
@given(st.lists(FRAMES, max_size=25))
def test_no_frames_in_any_order_are_the_end_of_more_than_their_connection(sent: list[bytes]) -> None:
    asyncio.run(survive([PREFACE + frames.SettingsFrame(0).serialize(), *sent]))


@settings(max_examples=40, deadline=None)
@given(st.lists(st.binary(max_size=100), max_size=5))
def test_no_bytes_are_the_end_of_more_than_their_connection(sent: list[bytes]) -> None:
    asyncio.run(survive(sent))


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 100_000), st.integers(0, 255))
def test_one_wrong_byte_is_the_end_of_no_more_than_its_connection(at: int, byte: int) -> None:
    async def run() -> None:
        async with served(FakeDesk(), Counts()) as server:
            sent = bytearray(script(Peer(server)))
        sent[at % len(sent)] = byte
        await survive([bytes(sent)])

    asyncio.run(run())
