"""One client's stream over any transport of whole messages: requests in, responses out."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator

from google.protobuf.message import DecodeError

from protos import core_pb2, discovery_pb2
from tidegate.config_envoys import Node
from xds.client import Answered, Client
from xds.events import Acked, Observe, Pushed, Rejected, StreamOpened
from xds.groups import Groups, TooMuchSaidError, introduced, shown
from xds.response import Encoder, next_offer, up_to_date
from xds.snapshot import Snapshot
from xds.standing import Parked, Standing
from xds.subscription import ABSENT, TooManyNamesError
from xds.turnstile import Turnstile

Read = Callable[[], Awaitable[bytes | None]]
"""Returns the next message, or ``None`` when there are no more."""

Write = Callable[[bytes], Awaitable[None]]

MAX_MESSAGE_CHARACTERS = 1000
"""How much of a client's reason for a rejection is passed on."""


class ProtocolError(Exception):
    """The client sent something that cannot be understood, or asks for too much; the message may be shown to it."""


class UnknownNodeError(ProtocolError):
    """No group of Envoys takes the client."""


class NotThatNodeError(UnknownNodeError):
    """The client gives itself another name than its certificate does."""


class Stream:
    """Serves one client until it leaves.

    Attributes:
        node: how the client names itself, as much of it as is shown.
        opened: it has said so, and is served.
        must_be: the name that it must have; empty for any.
    """

    def __init__(
        self,
        number: int,
        incremental: bool,
        groups: Groups | None,
        observe: Observe,
        encoder: Encoder,
        turnstile: Turnstile,
        only: str = "",
    ) -> None:
        """Start with what ``groups`` say; ``None`` keeps the client waiting until there is something.

        Args:
            number: the stream's, unique.
            incremental: it speaks the delta variant.
            groups: what clients should have.
            observe: told of what happens.
            encoder: encodes responses, for all streams that share it but once.
            turnstile: where it waits until it may be sent everything.
            only: the one type that the stream is about; empty on an aggregated one.
        """
        self.node = ""
        self.group = ""
        self.opened = False
        self._said = Node("")
        self._introduced = False
        self.must_be = ""
        self._number = number
        self.incremental = incremental
        self._client = Client(incremental)
        self._groups = groups
        self._observe = observe
        self._encoder = encoder
        self._turnstile = turnstile
        self._only = only
        self._refusals: dict[tuple[str, str], str] = {}
        self._wake = asyncio.Event()
        self._reading: asyncio.Task[None] | None = None
        self._nonce = 0

    def publish(self, groups: Groups) -> None:
        """Serve what ``groups`` say from now on."""
        self._groups = groups
        self._find_group()
        self._wake.set()

    @property
    def _snapshot(self) -> Snapshot | None:
        """What the client should have; ``None`` where that is not known yet, or nothing."""
        return None if self._groups is None else self._groups.snapshots.get(self.group)

    @property
    def up_to_date(self) -> bool:
        """Whether the client answered for all that it should have."""
        return self._snapshot is None or up_to_date(self._snapshot, self._client)

    async def serve(self, read: Read, write: Write) -> None:
        """Read requests and write responses until the client sends no more, or ``close``.

        Raises:
            ExceptionGroup: of a ``ProtocolError``, or of whatever ``read`` and ``write`` raise.
        """
        async with asyncio.TaskGroup() as tasks:
            writer = tasks.create_task(self._write_all(write))
            self._reading = tasks.create_task(self._read_all(read))
            await asyncio.wait([self._reading])
            writer.cancel()

    def close(self) -> None:
        """End ``serve``, as if the client had sent its last."""
        if self._reading is not None:
            self._reading.cancel()

    async def _read_all(self, read: Read) -> None:
        while (message := await read()) is not None:
            self._take(message)
            self._wake.set()

    async def _write_all(self, write: Write) -> None:
        await self._wake.wait()
        turn = await self._turnstile.enter()
        try:
            while True:
                self._wake.clear()
                await self._write_due(write)
                if self._client.subscriptions and self.up_to_date:
                    turn.end()
                await self._wake.wait()
        finally:
            turn.end()

    async def _write_due(self, write: Write) -> None:
        self._check_group()
        while self._snapshot is not None:
            self._client.recognise(self._snapshot)
            offer = next_offer(self._snapshot, self._client)
            if offer is None:
                break
            self._nonce += 1
            nonce = str(self._nonce)
            # Noted before it is written: the answer may come before the write returns.
            self._client.sent(offer, nonce)
            await write(self._encoder.encode(offer, nonce))
            self._observe(Pushed(self._number, self.node, offer.type_url, len(offer.resources), len(offer.removed)))

    def standing(self) -> Iterator[Standing]:
        """Return how it stands with each type that the client asked for."""
        for type_url, subscription in self._client.subscriptions.items():
            parked = {
                name: Parked(version, self._refusals.get((name, version), ""))
                for name, version in subscription.rejected.items()
            }
            held = sum(version != ABSENT for version in subscription.held.values())
            yield Standing(type_url, held, subscription.offered is not None, parked)

    def _take(self, message: bytes) -> None:
        try:
            answered = self._parsed(message)
        except DecodeError:
            raise ProtocolError("the request cannot be parsed") from None
        except TooManyNamesError:
            raise ProtocolError("too many resource names") from None
        if answered is None:
            return
        type_url = answered.offer.type_url
        if answered.error is None:
            self._observe(Acked(self._number, self.node, type_url))
        else:
            reason = " ".join(answered.error.split())[:MAX_MESSAGE_CHARACTERS]
            self._remember(answered, reason)
            self._observe(Rejected(self._number, self.node, type_url, dict(answered.offer.changed), reason))

    def _remember(self, answered: Answered, reason: str) -> None:
        """Keep why what is parked was refused, and forget why of what no longer is."""
        parked = {
            (name, version)
            for subscription in self._client.subscriptions.values()
            for name, version in subscription.rejected.items()
        }
        self._refusals = {what: why for what, why in self._refusals.items() if what in parked}
        self._refusals |= {what: reason for what in answered.offer.changed.items() if what in parked}

    def _parsed(self, message: bytes) -> Answered | None:
        if self._client.incremental:
            delta = discovery_pb2.DeltaDiscoveryRequest.FromString(message)
            self._introduce(delta.node)
            self._check_type(delta)
            return self._client.take_delta(delta)
        request = discovery_pb2.DiscoveryRequest.FromString(message)
        self._introduce(request.node)
        self._check_type(request)
        return self._client.take(request)

    def _check_type(self, request: discovery_pb2.DiscoveryRequest | discovery_pb2.DeltaDiscoveryRequest) -> None:
        """Take the type that a service of one type leaves out for said."""
        if self._only and request.type_url not in {"", self._only}:
            raise ProtocolError(f"this service is about {self._only} alone")
        request.type_url = request.type_url or self._only

    def _introduce(self, node: core_pb2.Node) -> None:
        """Take note of who it is, which the first request says."""
        if not self.opened:
            self.node = shown(node.id)
            if self.must_be not in {"", node.id}:
                raise NotThatNodeError("the certificate is another node's")
            try:
                self._said = introduced(node)
            except TooMuchSaidError:
                raise ProtocolError("too much metadata of the node") from None
            self._introduced = True
            self._find_group()
            self._check_group()
            self.opened = True
            self._observe(StreamOpened(self._number, self.node, self._client.incremental, self.group))

    def _find_group(self) -> None:
        """Find out in which group the client is, once it is known who it is and what groups there are."""
        if self._introduced and self._groups is not None:
            self.group = self._groups.group_of(self._said) or ""

    def _check_group(self) -> None:
        """Refuse a client that is in no group: it keeps what it has, and hears why it gets nothing."""
        if self._introduced and self._groups is not None and self._snapshot is None:
            said = f"{self.node!r} (cluster {self._said.cluster!r})"[:MAX_MESSAGE_CHARACTERS]
            raise UnknownNodeError(f"no group of Envoys takes the node {said}")
