"""One connection of the h2 transport: from bytes to streams, and back with one write per turn of the event loop."""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from typing import Any, cast

from h2 import events
from h2.errors import ErrorCodes
from h2.exceptions import NoSuchStreamError, ProtocolError, StreamIDTooLowError
from hpack import HeaderTuple

from extproc.h2_engine import HIGHEST_STREAM_ID, Engine, goaway
from extproc.h2_framing import ALL_WELL, RESPONSE, RESPONSE_HEADERS, trailers
from extproc.h2_interfaces import SERVER_STOPS, Call, Host, Stream
from extproc.transport import Ending, Status

QUIET_SECONDS = 30.0
"""After so long without a byte from the peer it is asked whether it is there."""

ANSWER_SECONDS = 10.0
"""How long it has to answer, and a new one to show that it speaks HTTP/2."""

_SLICE_BYTES = 65_536
"""Input is taken in pieces of this size: what the library has parsed and not yet handed out stays small."""

_log = logging.getLogger(__name__)

_NOT_GRPC = (HeaderTuple(b":status", b"415"),)
_NO_SUCH_METHOD = trailers(Ending(Status.UNIMPLEMENTED, "no such method"))
_DENIED = trailers(Ending(Status.PERMISSION_DENIED, "the certificate does not give the role that this takes"))
_DRAINING = b"draining"
_ALPN = "h2"


_GONE = (NoSuchStreamError, StreamIDTooLowError)
"""What the library says of a stream that the peer has ended: it knows of all frames of a piece of input before we see
the first event of it."""


class Connection(asyncio.Protocol):
    """One peer. Whatever it does wrong ends this connection, and no other."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._loop = asyncio.get_running_loop()
        self._engine = Engine()
        self._transport: asyncio.Transport | None = None
        self._calls: dict[int, Call] = {}
        self._read_only: set[int] = set()
        self._afterwards: list[Callable[[], None]] = []
        self._flushing = False
        self._paused = False
        self._began = self._heard = self._loop.time()
        self._asked: float | None = None
        self._speaks = False
        self._last_stream_id = HIGHEST_STREAM_ID
        self._draining = False
        self._closed_at: float | None = None
        self._denied = False
        self._acts: dict[type[events.Event], Callable[[Any], None]] = {
            events.RequestReceived: self._request,
            events.DataReceived: self._data,
            events.StreamEnded: self._ended,
            events.StreamReset: self._reset,
            events.WindowUpdated: self._window,
            events.RemoteSettingsChanged: self._settings,
            events.PingAckReceived: self._pong,
        }

    @property
    def calls(self) -> int:
        """How many streams are being served."""
        return len(self._calls)

    # -- asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin, if the server has room."""
        self._transport = cast("asyncio.Transport", transport)
        secured = transport.get_extra_info("ssl_object")
        if (secured is not None and secured.selected_alpn_protocol() != _ALPN) or not self._host.joined(self):
            self.abort()
            return
        self._denied = secured is not None and not self._host.admits(secured)
        self._engine.initiate_connection()
        self._flush_soon()

    def data_received(self, data: bytes) -> None:
        """Take in what the peer sent."""
        self._heard = self._loop.time()
        self._asked = None
        try:
            if len(data) <= _SLICE_BYTES:
                self._take(data)
            else:
                for at in range(0, len(data), _SLICE_BYTES):
                    self._take(data[at : at + _SLICE_BYTES])
        except ProtocolError as error:
            self._fail(type(error).__name__)
        except Exception as error:  # noqa: BLE001  the library failed over what a peer sent: that peer's connection ends
            self._fail(type(error).__name__)
        else:
            self._flush_soon()

    def pause_writing(self) -> None:
        """Send no more, and take no more in: whatever the peer says may ask for an answer."""
        self._paused = True
        if self._transport is not None:
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        """Go on."""
        self._paused = False
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()
        self._wake_all()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002  why does not matter
        """Cancel what is being served: nobody waits for it."""
        self._transport = None
        self._cancel_all()
        self._host.left(self)

    # -- the server's side

    def check(self, now: float) -> None:
        """Ask a peer that is quiet whether it is there; break off one that does not answer, and late streams."""
        for call in tuple(self._calls.values()):
            call.check(now)
        waiting_since = self._closed_at or self._asked or (None if self._speaks else self._began)
        if waiting_since is not None:
            if now - waiting_since > ANSWER_SECONDS:
                self.abort()
        elif now - self._heard > QUIET_SECONDS:
            self._asked = now
            self._engine.ping(b"tidegate")
            self._flush_soon()

    def drain(self) -> None:
        """Ask the peer to open no more streams here; close when those that are open are over.

        In two steps (RFC 9113 section 6.8): streams that are already on their way are still served, which all have
        arrived when the ping that follows the first GOAWAY is answered.
        """
        if not self._open or self._draining:
            return
        self._draining = True
        self._goaway(HIGHEST_STREAM_ID)
        self._engine.ping(_DRAINING)
        self._flush_soon()

    def drain_streams(self) -> None:
        """Have the streams say to the peer that they will not last."""
        for call in tuple(self._calls.values()):
            call.stream.drain()

    def stop(self) -> None:
        """End what is being served, and close."""
        for call in tuple(self._calls.values()):
            self._end(call.stream, SERVER_STOPS)
            call.cancel()
        self._close()

    def abort(self) -> None:
        """Break the connection off."""
        self._closed_at = self._loop.time()
        if self._transport is not None:
            self._transport.abort()

    # -- the streams' side (``Wire``)

    def now(self) -> float:
        """Return when the peer was last heard: as good as now, for what it has just sent."""
        return self._heard

    def acknowledge(self, stream_id: int, size: int) -> None:
        """Give the peer ``size`` bytes of its window back."""
        if size and self._open:
            self._engine.acknowledge_received_data(size, stream_id)
            self._flush_soon()

    def room(self, stream_id: int) -> int:
        """Return how many bytes may be sent now: none while the socket has enough to do."""
        if self._paused or not self._open:
            return 0
        return min(self._engine.local_flow_control_window(stream_id), self._engine.max_outbound_frame_size)

    def send(self, stream_id: int, data: bytes) -> None:
        """Send ``data``, for which there is room."""
        self._engine.send_data_at_once(stream_id, data)
        self._flush_soon()

    def begin_response(self, stream_id: int) -> None:
        """Send the response headers."""
        self._engine.send_known_headers(stream_id, RESPONSE)

    def end_ours(self, stream_id: int, ending: Ending) -> None:
        """Say the last word on a stream that has not been answered, and go on reading it until the peer ends it too."""
        self._engine.send_headers(stream_id, (*RESPONSE_HEADERS, *trailers(ending)), end_stream=True)
        self._read_only.add(stream_id)
        self._flush_soon()

    def hold(self, change: int) -> bool:
        """Take note of bytes held."""
        return self._host.hold(change)

    def afterwards(self, act: Callable[[], None]) -> None:
        """Do ``act`` at the end of this turn: until then the library may know of the stream's end, and we do not."""
        self._afterwards.append(act)

    # -- what comes in

    def _take(self, data: bytes) -> None:
        for event in self._engine.receive_data(data):
            act = self._acts.get(type(event))
            if act is not None:
                act(event)
        while self._afterwards:
            acts, self._afterwards = self._afterwards, []
            for afterwards in acts:
                afterwards()

    def _request(self, event: events.RequestReceived) -> None:
        stream_id = event.stream_id
        if stream_id > self._last_stream_id or not self._host.has_room():
            with contextlib.suppress(*_GONE):
                self._engine.reset_stream(stream_id, ErrorCodes.REFUSED_STREAM)
            return
        headers = dict(event.headers)
        if headers.get(b":method") != b"POST" or not _is_grpc(headers.get(b"content-type", b"")):
            self._last_words(stream_id, _NOT_GRPC)
            return
        if self._denied:
            self._last_words(stream_id, (*RESPONSE_HEADERS, *_DENIED))
            return
        call = self._host.begin(headers.get(b":path", b""), self, stream_id, self._end)
        if call is None:
            self._last_words(stream_id, (*RESPONSE_HEADERS, *_NO_SUCH_METHOD))
            return
        self._calls[stream_id] = call

    def _data(self, event: events.DataReceived) -> None:
        call = self._calls.get(event.stream_id)
        if call is None:
            self.acknowledge(event.stream_id, event.flow_controlled_length)
        else:
            call.stream.receive(event.data, event.flow_controlled_length)

    def _ended(self, event: events.StreamEnded) -> None:
        if call := self._calls.get(event.stream_id):
            call.stream.end()

    def _reset(self, event: events.StreamReset) -> None:
        if call := self._calls.pop(event.stream_id, None):
            self._read_only.discard(event.stream_id)
            call.cancel()
        self._close_if_drained()

    def _window(self, event: events.WindowUpdated) -> None:
        if not event.stream_id:
            self._wake_all()
        elif call := self._calls.get(event.stream_id):
            call.stream.wake()

    def _settings(self, _: events.Event) -> None:
        self._speaks = True
        self._wake_all()

    def _pong(self, event: events.PingAckReceived) -> None:
        if self._draining and event.ping_data == _DRAINING:
            self._last_stream_id = self._engine.highest_inbound_stream_id
            self._goaway(self._last_stream_id)
            self._close_if_drained()

    # -- what goes out

    def _end(self, stream: Stream, ending: Ending) -> None:
        """End ``stream`` as what serves it says; nothing happens to one that is over."""
        if self._calls.pop(stream.id, None) is None:
            return
        try:
            if ending.status is Status.OK and stream.answered:
                self._all_well(stream.id)
            else:
                words = trailers(ending)
                self._last_words(stream.id, words if stream.answered else (*RESPONSE_HEADERS, *words))
        except ProtocolError as error:
            # The library and we do not agree on what this stream is; it must not be the end of other connections.
            _log.error("a stream cannot be ended", extra={"fields": {"error": type(error).__name__}})
            self.abort()
        stream.close()
        self._close_if_drained()

    def _all_well(self, stream_id: int) -> None:
        """Do the same as ``_last_words`` for a stream that is answered and ends with OK, as nearly all do."""
        with contextlib.suppress(*_GONE):
            if stream_id not in self._read_only:
                self._engine.send_known_headers(stream_id, ALL_WELL, last=True)
        self._read_only.discard(stream_id)
        self._flush_soon()

    def _last_words(self, stream_id: int, headers: Sequence[HeaderTuple]) -> None:
        """Send the headers that end a stream; say that nothing more is read of it (RFC 9113 section 8.1)."""
        # If the peer had ended its side, there is nothing to reset.
        with contextlib.suppress(*_GONE):
            if stream_id not in self._read_only:
                self._engine.send_headers(stream_id, headers, end_stream=True)
            self._engine.reset_stream(stream_id, ErrorCodes.NO_ERROR)
        self._read_only.discard(stream_id)
        self._flush_soon()

    def _goaway(self, last_stream_id: int) -> None:
        self._flush()
        if self._transport is not None:
            self._transport.write(goaway(last_stream_id))

    def _flush_soon(self) -> None:
        if not self._flushing:
            self._flushing = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flushing = False
        if self._transport is not None and (data := self._engine.data_to_send()):
            self._transport.write(data)

    def _wake_all(self) -> None:
        for call in self._calls.values():
            call.stream.wake()

    def _close_if_drained(self) -> None:
        if self._last_stream_id != HIGHEST_STREAM_ID and not self._calls:
            self._close()

    @property
    def _open(self) -> bool:
        return self._transport is not None and self._closed_at is None

    def _close(self) -> None:
        """Close when everything is written, for which the peer has ``ANSWER_SECONDS``."""
        self._flush()
        if self._transport is not None and self._closed_at is None:
            self._closed_at = self._loop.time()
            self._transport.close()

    def _fail(self, reason: str) -> None:
        """End the connection with what the library has to say about it."""
        _log.warning("a connection is closed for its peer's fault", extra={"fields": {"reason": reason}})
        self._close()
        self._cancel_all()

    def _cancel_all(self) -> None:
        calls, self._calls = self._calls, {}
        for call in calls.values():
            call.cancel()


def _is_grpc(content_type: bytes) -> bool:
    return content_type == b"application/grpc" or content_type.startswith((b"application/grpc+", b"application/grpc;"))
