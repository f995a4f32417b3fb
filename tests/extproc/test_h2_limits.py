"""What a peer of the h2 transport may not do, and how a server takes its leave."""

import asyncio

import pytest
from hyperframe.frame import GoAwayFrame

from extproc import h2_connection, h2_engine, h2_transport
from extproc.transport import Outcome, Status
from tests.extproc.desks import FakeDesk
from tests.extproc.envoy_model import body_message, headers_message
from tests.extproc.h2_client import HEALTH, Counts, Peer, kinds, served
from tests.extproc.test_grpc_transport import HoldingDesk

REFUSED_STREAM, CANCEL = 7, 8


async def test_more_streams_than_the_server_takes_are_refused_and_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(h2_transport, "STREAMS", 2)
    async with served(FakeDesk(), Counts()) as server:
        peer = Peer(server)
        streams = [peer.open() for _ in range(3)]
        await peer.turn()
        assert [peer.answers[stream].reset for stream in streams] == [None, None, REFUSED_STREAM]
        peer.engine.reset_stream(streams[0], CANCEL)
        await peer.turn()
        again = peer.open(HEALTH)
        peer.message(again, b"", end=True)
        await peer.turn()
        assert peer.answers[again].status == 0


async def test_a_peer_that_ignores_the_stream_limit_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(h2_engine, "STREAMS_PER_CONNECTION", 70)
    async with served(FakeDesk(), Counts()) as server:
        peer = Peer(server)
        for _ in range(71):
            peer.open()
        peer.connection.data_received(peer.outgoing())
        await asyncio.sleep(0.01)
        assert (peer.wire.closing, server.streams) == (True, 0)


async def test_streams_that_are_over_do_not_count_against_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(h2_engine, "STREAMS_PER_CONNECTION", 70)
    async with served(FakeDesk(), Counts()) as server:
        peer = Peer(server)
        for _ in range(20):
            streams = [peer.open(HEALTH) for _ in range(50)]
            for stream in streams:
                peer.message(stream, b"", end=True)
            await peer.turn()
            assert {peer.answers[stream].status for stream in streams} == {0}
        assert len(peer.connection._engine.streams) <= 140


async def test_more_connections_than_the_server_takes_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(h2_transport, "CONNECTIONS", 1)
    async with served(FakeDesk(), Counts()) as server:
        first, second = Peer(server), Peer(server)
        assert (first.wire.aborted, second.wire.aborted) == (False, True)
        second.drop()
        first.drop()
        assert not Peer(server).wire.aborted


async def test_more_bytes_than_may_be_held_end_the_stream_that_sent_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(h2_transport, "HELD_BYTES", 30_000)
    async with served(FakeDesk(), Counts()) as server:
        peer = Peer(server)
        streams = [peer.open(), peer.open()]
        await peer.turn()
        for stream in streams:
            peer.engine.send_data(stream, b"\x00\x00\x10\x00\x00" + b"x" * 16_000)
            await peer.turn()
        assert peer.answers[streams[1]].status == Status.RESOURCE_EXHAUSTED
        assert server.held == 16_005


async def test_a_header_list_that_is_too_large_ends_the_connection() -> None:
    async with served(FakeDesk(), Counts()) as server:
        peer = Peer(server)
        peer.open(x="y" * 70_000)
        peer.connection.data_received(peer.outgoing())
        assert peer.wire.closing


async def test_headers_in_several_frames_are_taken() -> None:
    async with served(FakeDesk(), Counts()) as server:
        peer = Peer(server)
        stream = peer.open(HEALTH, x="y" * 40_000)
        peer.message(stream, b"", end=True)
        await peer.turn()
        assert peer.answers[stream].status == 0


async def test_pings_are_answered() -> None:
    async with served(FakeDesk(), Counts()) as server:
        peer = Peer(server)
        for _ in range(3):
            peer.engine.ping(b"12345678")
        await peer.turn()
        assert peer.pings == 3


async def test_health_is_of_the_whole_server_and_of_no_other_name() -> None:
    async with served(FakeDesk(), Counts()) as server:
        peer = Peer(server)
        asked = {message: peer.open(HEALTH) for message in (b"", b"\x0a\x00", b"\x0a\x01x")}
        for message, stream in asked.items():
            peer.message(stream, message, end=True)
        silent = peer.open(HEALTH, end=True)
        await peer.turn()
        assert [peer.answers[stream].messages for stream in asked.values()] == [[b"\x08\x01"], [b"\x08\x01"], []]
        assert peer.answers[asked[b"\x0a\x01x"]].status == Status.NOT_FOUND
        assert peer.answers[silent].status == Status.INTERNAL


async def test_a_goaway_of_the_peer_lets_its_streams_be_finished() -> None:
    desk = FakeDesk()
    async with served(desk, Counts()) as server:
        peer = Peer(server)
        stream = peer.open()
        peer.message(stream, headers_message())
        await peer.turn()
        peer.connection.data_received(GoAwayFrame(0, last_stream_id=0).serialize())
        peer.message(stream, body_message())
        await peer.turn()
        assert kinds(peer.answers[stream]) == ["request_headers", "request_body"]


async def test_a_peer_that_says_nothing_at_first_is_cut_off() -> None:
    async with served(FakeDesk(), Counts()) as server:
        peer = Peer(server)
        began = asyncio.get_running_loop().time()
        peer.connection.check(began + h2_connection.ANSWER_SECONDS - 1)
        assert not peer.wire.aborted
        peer.connection.check(began + h2_connection.ANSWER_SECONDS + 1)
        assert peer.wire.aborted


async def test_a_peer_that_falls_silent_is_asked_and_cut_off_when_it_does_not_answer() -> None:
    async with served(FakeDesk(), Counts()) as server:
        peer = Peer(server)
        await peer.turn()
        began = asyncio.get_running_loop().time()
        quiet, dead = began + h2_connection.QUIET_SECONDS + 1, h2_connection.ANSWER_SECONDS + 1
        peer.connection.check(began + h2_connection.QUIET_SECONDS - 1)
        peer.connection.check(quiet)
        await peer.turn()  # it answers the ping
        peer.connection.check(quiet + dead)
        await asyncio.sleep(0)
        assert not peer.wire.aborted
        peer.connection.check(quiet + 2 * dead)
        assert peer.wire.aborted


async def test_a_peer_that_does_not_take_our_last_words_is_cut_off() -> None:
    async with served(FakeDesk(), Counts()) as server:
        peer = Peer(server)
        peer.connection.data_received(b"GET / HTTP/1.1\r\n\r\n")
        assert (peer.wire.closing, peer.wire.aborted) == (True, False)
        peer.connection.check(asyncio.get_running_loop().time() + h2_connection.ANSWER_SECONDS + 1)
        assert peer.wire.aborted


async def test_draining_finishes_what_is_open_and_what_was_on_its_way_and_refuses_the_rest() -> None:
    desk = FakeDesk()
    async with served(desk, Counts()) as server:
        peer = Peer(server)
        stream = peer.open()
        peer.message(stream, headers_message())
        await peer.turn()
        draining = asyncio.create_task(server.drain(5))
        await asyncio.sleep(0)
        crossed = peer.open(HEALTH)
        peer.message(crossed, b"", end=True)
        await peer.turn()
        assert peer.goaways == [2**31 - 1, crossed]
        assert peer.answers[crossed].messages == [b"\x08\x02"], "not serving any more"
        late = peer.open(HEALTH)
        await peer.turn()
        assert (peer.answers[late].reset, peer.wire.closing) == (REFUSED_STREAM, False)
        peer.message(stream, body_message())
        await peer.turn()
        assert kinds(peer.answers[stream]) == ["request_headers", "request_body"]
        assert (peer.answers[stream].status, peer.wire.closing, desk.live) == (0, True, {"r1"})
        peer.drop()
        await draining


async def test_what_outlasts_the_grace_is_unavailable_and_reserves_nothing() -> None:
    desk, counts = HoldingDesk(), Counts()
    async with served(desk, counts) as server:
        peer = Peer(server)
        stream = peer.open()
        peer.message(stream, headers_message())
        peer.message(stream, body_message())
        await peer.turn()
        await server.drain(0.01)
        assert peer.wire.closing
        peer.read()
        assert peer.answers[stream].trailers == {"grpc-status": "14", "grpc-message": "the server stops"}
        assert (desk.live, counts.ended) == (set(), [Outcome.CANCELLED])
