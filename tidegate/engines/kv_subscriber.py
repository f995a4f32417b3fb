"""Listens to what one engine says of its KV cache, over ZMQ; what it means goes out as ``FleetEvent``s.

A connection is one life of the engine: with each, what the engine holds begins as unknown, and is forgotten where the
connection ends. What came before it, or was missed, is asked for again where the engine repeats it (vLLM's
``replay_endpoint``); else a missing number makes all that is known doubtful, and it is forgotten too. Silence is no
sign: an engine whose cache does not change says nothing.

Nothing here authenticates the engine, and it may send anything: messages, queues and waits are bounded, and what cannot
be read is counted.
"""

import asyncio
import logging
import random
from collections.abc import Callable, Sequence
from typing import Any, Final

import zmq
import zmq.asyncio
from zmq.utils.monitor import parse_monitor_message

from tidegate.engines.kv_events import MAX_MESSAGE_BYTES, Batch, CacheFollower, MalformedEventsError, decode
from tidegate.engines.kv_source import KvOutcome, KvSource, KvStanding
from tidegate.fleet.events import FleetEvent

QUEUED_MESSAGES: Final = 1_000
"""The most messages that wait to be read; what comes beyond is dropped by ZMQ, and shows as a gap."""

CONNECT_SECONDS: Final = 5.0
REPLAY_SECONDS: Final = 30.0
REPLAY_SILENCE_SECONDS: Final = 3.0
"""How long all of a replay may take, and how long the next message of it."""

FIRST_PAUSE_SECONDS: Final = 0.2
LONGEST_PAUSE_SECONDS: Final = 10.0
"""Between two attempts to connect: twice as long each time, jittered by half."""

HEARTBEAT_SECONDS: Final = 10.0
"""Pause between two of ZMQ's own pings; an engine that answers none for three times as long is taken for gone."""

END_OF_REPLAY: Final = b"\xff" * 8

_ENDS: Final = (
    zmq.EVENT_DISCONNECTED
    | zmq.EVENT_CLOSED
    | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
    | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
    | zmq.EVENT_HANDSHAKE_FAILED_AUTH
)

_LOG = logging.getLogger("tidegate.engines")


class Subscription:
    """Follows one engine for as long as ``run`` runs."""

    def __init__(
        self,
        source: KvSource,
        context: zmq.asyncio.Context,
        emit: Callable[[FleetEvent], None],
        observe: Callable[[KvOutcome], None],
        rng: random.Random,
    ) -> None:
        """Prepare to listen to ``source``; ``observe`` counts what happens, ``rng`` spreads attempts to connect."""
        self.source = source
        self.standing = KvStanding()
        self._context = context
        self._emit = emit
        self._observe = observe
        self._rng = rng
        self._follower = CacheFollower(source.address, "", source.block_size)
        self._repeated_to = 0
        self._said: set[KvOutcome] = set()

    async def run(self) -> None:
        """Listen, and connect again, until cancelled."""
        pause = FIRST_PAUSE_SECONDS
        while True:
            try:
                await self._connection()
            except Exception as error:  # noqa: BLE001  nothing that an engine sends may end this
                self._note(KvOutcome.FAULT, type(error).__name__)
            if self.standing.connected:
                self.standing.connected = False
                self._note(KvOutcome.DISCONNECTED, "its cache is not known until it tells again")
                self._tell(self._follower.lost())
                pause = FIRST_PAUSE_SECONDS
            await asyncio.sleep(pause * (0.5 + self._rng.random()))
            pause = min(2 * pause, LONGEST_PAUSE_SECONDS)

    async def _connection(self) -> None:
        """Connect, and listen until the connection ends."""
        socket = self._socket(zmq.SUB)
        monitor = socket.get_monitor_socket(_ENDS | zmq.EVENT_HANDSHAKE_SUCCEEDED)
        try:
            socket.subscribe(self.source.topic)
            socket.connect(self.source.events_url)
            try:
                async with asyncio.timeout(CONNECT_SECONDS):
                    if await _next_event(monitor) != zmq.EVENT_HANDSHAKE_SUCCEEDED:
                        return
            except TimeoutError:
                return
            self._connected()
            async with asyncio.TaskGroup() as tasks:
                reading = tasks.create_task(self._read(socket))
                while not await _next_event(monitor) & _ENDS:
                    pass
                reading.cancel()
        finally:
            socket.disable_monitor()
            monitor.close(linger=0)
            socket.close(linger=0)

    def _connected(self) -> None:
        self._said.clear()
        self._repeated_to = 0
        self.standing.connected = True
        self._observe(KvOutcome.CONNECTED)
        fields = {"address": self.source.address, "from": self.source.events_url}
        _LOG.info("KV events", extra={"fields": fields})
        self._tell(self._follower.lost())

    def _socket(self, kind: int) -> zmq.asyncio.Socket:
        socket: zmq.asyncio.Socket = self._context.socket(kind)
        socket.setsockopt(zmq.LINGER, 0)
        socket.setsockopt(zmq.IPV6, 1)
        socket.setsockopt(zmq.RCVHWM, QUEUED_MESSAGES)
        socket.setsockopt(zmq.MAXMSGSIZE, MAX_MESSAGE_BYTES)
        socket.setsockopt(zmq.RECONNECT_IVL, -1)  # a connection is one life of the engine
        socket.setsockopt(zmq.HEARTBEAT_IVL, int(1000 * HEARTBEAT_SECONDS))
        socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, int(3000 * HEARTBEAT_SECONDS))
        return socket

    async def _read(self, socket: zmq.asyncio.Socket) -> None:
        if self.source.replay_url:
            await self._replay(0)
        while True:
            frames = await socket.recv_multipart()
            batch = self._decoded(frames)
            if batch is not None and not self._repeated(batch):
                if self._follows_gap(batch):
                    await self._replay(self._follower.expected(batch.rank) or 0)
                if not self._repeated(batch):
                    self._take(batch)
            await asyncio.sleep(0)  # a socket that has more gives no turn to others

    def _decoded(self, frames: Sequence[bytes]) -> Batch | None:
        """Return a message's batch; ``None`` for what cannot be read, which may have been anything."""
        try:
            number, payload = frames[-2:] if len(frames) > 1 else (b"", b"")
            return decode(number, payload)
        except MalformedEventsError as error:
            self.standing.unreadable += 1
            self._note(KvOutcome.UNREADABLE, str(error))
            self._tell(self._follower.lost())
            return None

    def _repeated(self, batch: Batch) -> bool:
        """Return whether ``batch`` came by a replay already, whose end overlaps with what is live."""
        return batch.number < self._repeated_to

    def _follows_gap(self, batch: Batch) -> bool:
        """Return whether something is missing before ``batch`` that can be asked for."""
        if not self.source.replay_url:
            return False
        return batch.number > (self._follower.expected(batch.rank) or 0)

    def _take(self, batch: Batch) -> None:
        expected = self._follower.expected(batch.rank)
        if expected is not None and batch.number != expected:
            self.standing.missed += 1
            self._note(KvOutcome.MISSED, f"number {batch.number} came after {expected - 1}")
        self.standing.batches += 1
        self._observe(KvOutcome.TAKEN)
        self._tell(self._follower.take(batch))
        if self._follower.odd_size is not None and self.standing.odd_size is None:
            self.standing.odd_size = self._follower.odd_size
            self._note(KvOutcome.ODD_SIZE, f"blocks of {self.standing.odd_size} tokens, not {self.source.block_size}")

    async def _replay(self, first: int) -> None:
        """Take in what the engine still has of its batches from number ``first`` on."""
        socket = self._socket(zmq.DEALER)
        self._observe(KvOutcome.REPLAY)
        try:
            socket.connect(self.source.replay_url)
            async with asyncio.timeout(REPLAY_SECONDS):
                await socket.send_multipart([b"", first.to_bytes(8, "big")])
                while True:
                    async with asyncio.timeout(REPLAY_SILENCE_SECONDS):
                        frames = await socket.recv_multipart()
                    if len(frames) > 1 and frames[-2] == END_OF_REPLAY:
                        return
                    batch = self._decoded(frames)
                    if batch is not None and batch.number >= first:
                        self._take(batch)
                        self._repeated_to = batch.number + 1
                    await asyncio.sleep(0)
        except TimeoutError:
            self._note(KvOutcome.REPLAY_FAILED, "no end of it came in time")
        finally:
            socket.close(linger=0)

    def _tell(self, events: Sequence[FleetEvent]) -> None:
        for event in events:
            self._emit(event)

    def _note(self, outcome: KvOutcome, reason: str) -> None:
        """Count ``outcome``, and write it down the first time on a connection."""
        self._observe(outcome)
        if outcome not in self._said:
            self._said.add(outcome)
            fields = {"address": self.source.address, "outcome": outcome.value, "reason": reason}
            _LOG.warning("KV events", extra={"fields": fields})


async def _next_event(monitor: Any) -> int:
    event: int = parse_monitor_message(await monitor.recv_multipart())["event"]
    return event
