"""The h2 transport on scripted connections in memory."""

import asyncio

import pytest
from h2.settings import SettingCodes

from extproc import h2_engine, transport
from extproc.h2_framing import framed
from extproc.transport import Outcome, Status
from tests.extproc.desks import FakeDesk
from tests.extproc.envoy_model import POST, body_message, headers_message
from tests.extproc.h2_client import HEALTH, MAX_MESSAGE_BYTES, PROCESS, Counts, Peer, feed, kinds, served
from tests.extproc.test_grpc_transport import HoldingDesk

NO_ERROR, CANCEL = 0, 8
LARGE = b'{"model": "m", "messages": [{"content": "' + b"x" * 3_000_000 + b'"}]}'


async def test_a_stream_is_closed_with_ok_right_after_its_decision() -> None:
    desk, counts = FakeDesk(), Counts()
    async with served(desk, counts) as server:
        peer = Peer(server)
        stream = peer.open()
        peer.message(stream, headers_message())
        await peer.turn()
        answer = peer.answers[stream]
        assert kinds(answer) == ["request_headers"]
        peer.message(stream, body_message())
        await peer.turn()

        assert kinds(answer) == ["request_headers", "request_body"]
        assert answer.headers == {":status": "200", "content-type": "application/grpc"}
        assert (answer.trailers, answer.reset) == ({"grpc-status": "0"}, NO_ERROR)
        assert (desk.live, desk.abandoned, counts.ended) == ({"r1"}, [], [Outcome.FINISHED])


async def test_decision_and_trailers_leave_in_one_write() -> None:
    desk, counts = FakeDesk(), Counts()
    async with served(desk, counts) as server:
        peer = Peer(server)
        await peer.turn()
        stream = peer.open()
        peer.message(stream, headers_message())
        peer.message(stream, body_message())
        before = peer.wire.writes
        await peer.turn()
        assert peer.answers[stream].status == 0
        assert peer.wire.writes - before <= 2


async def test_a_body_larger_than_every_window_passes() -> None:
    desk, counts = FakeDesk(), Counts()
    async with served(desk, counts) as server:
        peer = Peer(server)
        stream = peer.open()
        peer.message(stream, headers_message())
        await peer.turn()
        await feed(peer, stream, framed(body_message(LARGE)))
        async with asyncio.timeout(10):
            while len(kinds(peer.answers[stream])) < 2:  # a large body is read in a thread
                await asyncio.sleep(0.005)
                await peer.turn()

        assert kinds(peer.answers[stream]) == ["request_headers", "request_body"]
        assert desk.requests[0].prompt.tokens == 3_000_010
        assert server.held == 0


async def test_what_lies_behind_a_message_that_nobody_has_taken_closes_the_window() -> None:
    desk, counts = HoldingDesk(), Counts()
    async with served(desk, counts) as server:
        peer = Peer(server)
        await peer.turn()
        stream = peer.open()
        peer.message(stream, headers_message())
        peer.message(stream, body_message())
        peer.message(stream, b"and another one")
        await peer.turn()
        with pytest.raises(AssertionError, match="does not give its window back"):
            await feed(peer, stream, framed(b"x" * 3_000_000))
        assert server.held <= h2_engine.STREAM_WINDOW_BYTES
        # The others go on: the connection's window is larger.
        other = peer.open()
        peer.message(other, headers_message({**POST, ":path": "/nowhere"}))
        await peer.turn()
        assert peer.answers[other].status == 0


async def test_a_reply_goes_out_as_fast_as_the_peers_window_lets_it() -> None:
    desk, counts = FakeDesk(), Counts()
    async with served(desk, counts) as server:
        peer = Peer(server, {SettingCodes.INITIAL_WINDOW_SIZE: 20})
        peer.unread = True
        stream = peer.open()
        peer.message(stream, headers_message({**POST, ":path": "/nowhere"}))
        await peer.turn()
        answer = peer.answers[stream]
        assert (answer.deframer.held, answer.messages, answer.ended) == (20, [], False)
        for _ in range(200):
            if answer.ended:
                break
            peer.engine.increment_flow_control_window(7, stream)
            await peer.turn(4)
        assert kinds(answer) == ["immediate_response"]
        assert answer.status == 0


async def test_the_connections_window_holds_a_reply_back_as_well() -> None:
    desk, counts = FakeDesk(), Counts()
    async with served(desk, counts) as server:
        peer = Peer(server)
        peer.unread = True
        nowhere = headers_message({**POST, ":path": "/nowhere"})
        streams = []
        for _ in range(700):
            streams.append(peer.open())
            peer.message(streams[-1], nowhere)
            await peer.turn(4)
        done = [stream for stream in streams if peer.answers[stream].ended]
        assert 0 < len(done) < 700
        peer.engine.increment_flow_control_window(10_000_000)
        await peer.turn(30)
        assert all(peer.answers[stream].status == 0 for stream in streams)


async def test_nothing_is_sent_or_read_while_the_socket_is_full() -> None:
    desk, counts = FakeDesk(), Counts()
    async with served(desk, counts) as server:
        peer = Peer(server)
        stream = peer.open()
        peer.message(stream, headers_message({**POST, ":path": "/nowhere"}))
        peer.connection.pause_writing()
        peer.connection.data_received(peer.outgoing())
        await peer.turn()
        assert (peer.wire.reading, peer.answers[stream].messages) == (False, [])
        peer.connection.resume_writing()
        await peer.turn()
        assert (peer.wire.reading, kinds(peer.answers[stream])) == (True, ["immediate_response"])


@pytest.mark.parametrize("after", range(4))
async def test_a_reset_at_any_moment_releases_everything(after: int) -> None:
    desk, counts = FakeDesk(), Counts()
    async with served(desk, counts) as server:
        peer = Peer(server, {SettingCodes.INITIAL_WINDOW_SIZE: 20} if after == 3 else None)
        peer.unread = True
        stream = peer.open()
        if after:
            peer.message(stream, headers_message())
            await peer.turn()
        if after > 1:
            peer.message(stream, body_message())
        if after == 3:
            await peer.turn()  # the decision is made, and cannot leave: the window is closed
            assert desk.live
        peer.engine.reset_stream(stream, CANCEL)
        await peer.turn()
        assert server.streams == 0
        # One whose request and end came together is decided for nobody, or not at all.
        assert (desk.live, counts.ended) == (set(), [Outcome.CANCELLED] * counts.started)
        assert desk.abandoned == (["r1"] if after == 3 else [])
        fine = peer.open(HEALTH)
        peer.message(fine, b"", end=True)
        peer.engine.increment_flow_control_window(100, fine)
        await peer.turn()
        assert peer.answers[fine].status == 0


async def test_streams_that_are_opened_and_reset_in_one_breath_leave_nothing() -> None:
    desk, counts = FakeDesk(), Counts()
    async with served(desk, counts) as server:
        peer = Peer(server)
        await peer.turn()
        for path in (PROCESS, "/nowhere", HEALTH) * 700:
            peer.engine.reset_stream(peer.open(path), CANCEL)
        await peer.turn(30)
        assert (server.streams, counts.started, peer.wire.closing) == (0, 0, False)


async def test_a_lost_connection_cancels_its_streams_and_no_other() -> None:
    desk, counts = HoldingDesk(), Counts()
    async with served(desk, counts) as server:
        gone, stays = Peer(server), Peer(server)
        for peer in (gone, stays):
            stream = peer.open()
            peer.message(stream, headers_message())
            peer.message(stream, body_message())
            await peer.turn()
        gone.drop()
        await asyncio.sleep(0.01)
        assert (server.streams, server.connections, counts.ended) == (1, 1, [Outcome.CANCELLED])


@pytest.mark.parametrize("path", ["/nowhere", f"/{transport.SERVICE}/Other", "/grpc.health.v1.Health/Watch", "*"])
async def test_what_is_not_served_is_unimplemented_at_once(path: str) -> None:
    async with served(FakeDesk(), Counts()) as server:
        peer = Peer(server)
        stream = peer.open(path)
        await peer.turn()
        answer = peer.answers[stream]
        assert (answer.status, answer.headers["grpc-message"]) == (Status.UNIMPLEMENTED, "no such method")
        assert (answer.trailers, answer.ended) == ({}, True)


async def test_what_is_not_grpc_is_415() -> None:
    async with served(FakeDesk(), Counts()) as server:
        peer = Peer(server)
        streams = [peer.open(content_type=kind) for kind in ("text/html", "application/grpcx", "")]
        fine = peer.open(HEALTH, content_type="application/grpc+proto")
        peer.message(fine, b"", end=True)
        await peer.turn()
        assert [peer.answers[stream].headers[":status"] for stream in streams] == ["415"] * 3
        assert peer.answers[fine].headers[":status"] == "200"


async def test_messages_that_are_compressed_too_large_or_cut_short_have_their_status() -> None:
    desk, counts = FakeDesk(), Counts()
    async with served(desk, counts) as server:
        peer = Peer(server)
        compressed, large, short = peer.open(), peer.open(), peer.open()
        peer.engine.send_data(compressed, b"\x01\x00\x00\x00\x01x")
        peer.engine.send_data(large, b"\x00" + (MAX_MESSAGE_BYTES + 1).to_bytes(4, "big"))
        peer.engine.send_data(short, b"\x00\x00\x00\x00\x09four", end_stream=True)
        await peer.turn()
        statuses = [peer.answers[stream].status for stream in (compressed, large, short)]
        assert statuses == [Status.UNIMPLEMENTED, Status.RESOURCE_EXHAUSTED, Status.INTERNAL]
        assert counts.ended == [Outcome.FAILED] * 3


async def test_a_half_close_before_the_decision_never_ends_with_ok() -> None:
    desk, counts = FakeDesk(), Counts()
    async with served(desk, counts) as server:
        peer = Peer(server)
        stream = peer.open()
        peer.message(stream, headers_message(), end=True)
        await peer.turn()
        assert (peer.answers[stream].status, counts.ended) == (Status.CANCELLED, [Outcome.CANCELLED])
        assert peer.answers[stream].reset is None


async def test_a_fault_of_ours_is_internal_and_no_word_of_it() -> None:
    desk, counts = FakeDesk(), Counts()
    desk.fault = RuntimeError("the prompt")
    async with served(desk, counts) as server:
        peer = Peer(server)
        stream = peer.open()
        peer.message(stream, headers_message())
        peer.message(stream, body_message())
        await peer.turn()
        assert peer.answers[stream].trailers == {"grpc-status": "13", "grpc-message": "the decision failed"}


async def test_a_stream_that_takes_too_long_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "STREAM_SECONDS", 0.02)
    desk, counts = FakeDesk(), Counts()
    async with served(desk, counts) as server:
        peer = Peer(server)
        stream = peer.open()
        await peer.turn()
        await asyncio.sleep(0.05)
        await peer.turn()
        peer.connection.check(asyncio.get_running_loop().time())
        await peer.turn()
        assert peer.answers[stream].status == Status.DEADLINE_EXCEEDED
