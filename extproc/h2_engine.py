"""The HTTP/2 engine of a connection: the library ``h2``, set up as a server for Envoy."""

import struct

from h2.config import H2Configuration
from h2.connection import ConnectionInputs, H2Connection
from h2.errors import ErrorCodes
from h2.events import ConnectionTerminated, Event
from h2.settings import SettingCodes, Settings
from h2.stream import StreamInputs
from hyperframe.frame import Frame, GoAwayFrame

from extproc.h2_framing import KnownHeaders
from extproc.h2_headers import RememberingDecoder

STREAMS_PER_CONNECTION = 10_000
"""Open streams that a peer may have on one connection. HTTP/2 lets it know; one that has more is cut off."""

STREAM_WINDOW_BYTES = 65_535
CONNECTION_WINDOW_BYTES = 16_777_216
"""What a peer may send without being asked for more, on a stream and on all of them. What a peer may send of a large
prompt at once stands in front of all other requests on the connection."""

HEADER_LIST_BYTES = 65_536
"""The largest header list that is taken, as RFC 9113 section 6.5.2 counts it."""

HIGHEST_STREAM_ID = 2**31 - 1

_FRAME = struct.Struct(">HBBBL")
_DATA, _HEADERS, _RST_STREAM = 0, 1, 3
_END_STREAM, _END_HEADERS = 1, 4
_NO_ERROR = b"\0\0\0\0"

_CLOSED_STREAMS = 4_096
"""Streams whose end is remembered, to tell a frame that crossed it from a peer that does not keep to the protocol."""

# Checked by those who read them: four headers of a request concern us, and we write none but our own.
_CONFIG = H2Configuration(
    client_side=False,
    header_encoding=None,
    validate_inbound_headers=False,
    validate_outbound_headers=False,
    normalize_inbound_headers=False,
    normalize_outbound_headers=False,
)


def _kind(frame: Frame) -> str:
    return type(frame).__name__


# The library writes out each frame that it receives, the body included, for a log that nobody keeps.
Frame.__repr__ = _kind  # type: ignore[method-assign]


class Engine(H2Connection):
    """An ``H2Connection`` for a server with many short streams, and with a graceful end."""

    MAX_CLOSED_STREAMS = _CLOSED_STREAMS

    def __init__(self) -> None:
        super().__init__(_CONFIG)
        self._count_at = 64
        self.decoder = RememberingDecoder()
        self.decoder.max_header_list_size = HEADER_LIST_BYTES
        # In force from the first byte, not only when the peer has acknowledged them.
        self.local_settings = Settings(
            client=False,
            initial_values={
                SettingCodes.MAX_CONCURRENT_STREAMS: STREAMS_PER_CONNECTION,
                SettingCodes.INITIAL_WINDOW_SIZE: STREAM_WINDOW_BYTES,
                SettingCodes.MAX_HEADER_LIST_SIZE: HEADER_LIST_BYTES,
            },
        )

    def initiate_connection(self) -> None:
        """Begin: our settings, and a window for all streams."""
        super().initiate_connection()
        self.increment_flow_control_window(CONNECTION_WINDOW_BYTES - self.inbound_flow_control_window)

    @property
    def open_inbound_streams(self) -> int:
        """How many streams are open, at most.

        The library asks for each new stream, and walks through all of them to count and to forget those that are over.
        It need not, until as many came as there were.
        """
        if len(self.streams) < self._count_at:
            return len(self.streams)
        count = super().open_inbound_streams
        self._count_at = min(max(64, 2 * count), STREAMS_PER_CONNECTION)
        return count

    def send_known_headers(self, stream_id: int, known: KnownHeaders, *, last: bool = False) -> None:
        """Do as ``send_headers`` does, and, of the ``last`` headers of a stream, as ``reset_stream`` does after them.

        What the library does for headers that it has never seen took an eighth of a request's time (measured).
        """
        if self.encoder.header_table.resized:  # which the next block must begin with
            self.send_headers(stream_id, known.headers, end_stream=last)
            if last:
                self.reset_stream(stream_id, ErrorCodes.NO_ERROR)
            return
        self.state_machine.process_input(ConnectionInputs.SEND_HEADERS)
        state = self._get_stream_by_id(stream_id).state_machine
        state.process_input(StreamInputs.SEND_HEADERS)
        if last:
            state.process_input(StreamInputs.SEND_END_STREAM)
        self._send_frame(_HEADERS, _END_HEADERS | last * _END_STREAM, stream_id, known.block)
        if last:
            self.state_machine.process_input(ConnectionInputs.SEND_RST_STREAM)
            state.process_input(StreamInputs.SEND_RST_STREAM)
            self._send_frame(_RST_STREAM, 0, stream_id, _NO_ERROR)

    def send_data_at_once(self, stream_id: int, data: bytes) -> None:
        """Do as ``send_data`` does with data for which there is room in both windows and in a frame."""
        stream = self.streams[stream_id]
        stream.state_machine.process_input(StreamInputs.SEND_DATA)
        stream.outbound_flow_control_window -= len(data)
        self.outbound_flow_control_window -= len(data)
        self._send_frame(_DATA, 0, stream_id, data)

    def _send_frame(self, kind: int, flags: int, stream_id: int, payload: bytes) -> None:
        size = len(payload)
        self._data_to_send += _FRAME.pack(size >> 8, size & 0xFF, kind, flags, stream_id) + payload

    def _receive_goaway_frame(self, frame: GoAwayFrame) -> tuple[list[Frame], list[Event]]:
        """Take note that the peer opens no more streams.

        The library takes the connection for closed and lets nothing more be sent; the streams that are open may be
        finished, though (RFC 9113 section 6.8).
        """
        terminated = ConnectionTerminated()
        terminated.last_stream_id = frame.last_stream_id
        return [], [terminated]


def goaway(last_stream_id: int) -> bytes:
    """Return the frame that asks the peer to open no stream above ``last_stream_id`` (without error).

    The library sends one only when it closes the connection on our side too.
    """
    return GoAwayFrame(0, last_stream_id=last_stream_id).serialize()
