"""One end of the stream between the main process and a worker."""

import asyncio
import contextlib
import logging
import socket
from collections.abc import Callable
from typing import Final, Generic, Protocol, TypeVar, cast

import msgspec

from tidegate.runtime.workers.framing import Deframer, FramingError
from tidegate.runtime.workers.messages import Message, encode
from tidegate.telemetry.log import event

logger = logging.getLogger("tidegate.workers")

BACKLOG_BYTES: Final = 67_108_864
"""What may wait for a peer that does not read; beyond that the channel is closed. A request takes about 500 bytes."""

CLOSE_SECONDS: Final = 1.0

M_co = TypeVar("M_co", covariant=True)


class Decoder(Protocol[M_co]):
    """Turns bytes into messages."""

    def decode(self, data: bytes, /) -> M_co:
        """Return the message.

        Raises:
            msgspec.DecodeError: it is none.
        """
        ...


class Channel(asyncio.Protocol, Generic[M_co]):
    """Sends without ever waiting, one write for each turn of the event loop, and calls back for what arrives.

    A peer that does not read, or that sends what is no message, has its channel closed: whoever owns it ends the
    process on the other side, or itself.
    """

    def __init__(self, decoder: Decoder[M_co], receive: Callable[[M_co], None], closed: Callable[[], None]) -> None:
        """Give each message to ``receive``; call ``closed`` once, when there will be no more."""
        self._decoder = decoder
        self._receive = receive
        self._closed = closed
        self._deframer = Deframer()
        self._transport: asyncio.Transport | None = None
        self._loop = asyncio.get_running_loop()
        self._pending: list[bytes] = []
        self._dead = False
        self._over = asyncio.Event()

    @classmethod
    async def over(
        cls, sock: socket.socket, decoder: Decoder[M_co], receive: Callable[[M_co], None], closed: Callable[[], None]
    ) -> "Channel[M_co]":
        """Return the end of the stream ``sock``, which is the channel's from now on."""
        loop = asyncio.get_running_loop()
        _, channel = await loop.create_unix_connection(lambda: cls(decoder, receive, closed), sock=sock)
        return channel

    def send(self, message: Message) -> None:
        """Send ``message``."""
        self.send_encoded(encode(message))

    def send_encoded(self, frame: bytes) -> None:
        """Send what ``encode`` made of a message. After the end it goes nowhere."""
        if self._dead:
            return
        if not self._pending:
            self._loop.call_soon(self.flush)
        self._pending.append(frame)

    def flush(self) -> None:
        """Write what is to be sent, now."""
        pending, self._pending = self._pending, []
        if self._transport is None or self._dead or not pending:
            return
        self._transport.write(b"".join(pending))
        if self._transport.get_write_buffer_size() > BACKLOG_BYTES:
            event(logger, "a channel is not read, and closed", level=logging.ERROR, backlog_bytes=BACKLOG_BYTES)
            self.abort()

    def abort(self) -> None:
        """End the channel, whatever was not sent."""
        self._dead = True
        if self._transport is not None:
            self._transport.abort()

    async def close(self) -> None:
        """End the channel, once everything was sent or ``CLOSE_SECONDS`` have passed."""
        self.flush()
        if self._transport is not None:
            self._transport.close()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._over.wait(), CLOSE_SECONDS)

    # -- asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Take what the peer sent."""
        try:
            for message in self._deframer.feed(data):
                if self._dead:
                    return
                self._receive(self._decoder.decode(message))
        except (FramingError, msgspec.DecodeError) as error:
            event(logger, "a channel is not understood, and closed", level=logging.ERROR, reason=str(error))
            self.abort()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002  why does not matter
        """Take note of the end."""
        self._dead = True
        self._over.set()
        self._closed()
