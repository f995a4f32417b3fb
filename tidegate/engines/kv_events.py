"""What an engine says of its KV cache, in vLLM's format: which blocks it stored and which it removed.

A message has three frames: a topic, a sequence number of 8 bytes, and a msgpack array ``[time, [event, ...], rank]``.
An event is a map with its ``type``, or in older releases an array that begins with it. What is not known is passed
over; what cannot be read is an error that the caller takes for a gap.

The engine's hashes are its own. A block is told by the token ids in it and by its parent, so its place in a prompt's
chain is worked out here: ``tokens.prefix.of_token_ids`` makes the same hashes of a prompt. Only blocks in the GPU's
memory count; those in main memory or on disk are slower to use than a decision wants to know.
"""

from collections import OrderedDict
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from tidegate.fleet.events import BlocksCleared, BlocksRemoved, BlocksStored, FleetEvent
from tidegate.tokens import prefix

MAX_MESSAGE_BYTES = 16_777_216
"""The largest payload that is read: a batch that stores a million tokens has about 5 MB."""

MAX_BLOCKS = 200_000
"""The most blocks of one engine whose hashes are kept; the oldest go first."""

MAX_RANKS = 1024

ON_GPU = "GPU"


class MalformedEventsError(Exception):
    """A message is not one of KV events."""


class Stored(NamedTuple):
    """Blocks were stored, one after the other.

    Attributes:
        hashes: the engine's own, numbers or bytes.
        parent: that of the block before the first; ``None`` where the first is the first of a prompt.
        token_ids: of all the blocks.
        block_size: token ids of one block.
        adapter: the LoRA adapter they were made with; empty for none.
        extras: for each block what tells it from others with the same tokens: images, a salt.
    """

    hashes: tuple[int | bytes, ...]
    parent: int | bytes | None
    token_ids: tuple[int, ...]
    block_size: int
    adapter: str
    extras: tuple[tuple[str, ...], ...]


class Removed(NamedTuple):
    """Blocks were removed."""

    hashes: tuple[int | bytes, ...]


class Cleared(NamedTuple):
    """All blocks were removed."""


KvEvent = Stored | Removed | Cleared


class Batch(NamedTuple):
    """One message.

    Attributes:
        number: its sequence number.
        events: in their order.
        rank: the data-parallel rank that sent it; 0 when it does not say.
    """

    number: int
    events: tuple[KvEvent, ...]
    rank: int = 0


_STORED_FIELDS = ("block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id", "medium", "lora_name")
_REMOVED_FIELDS = ("block_hashes", "medium")


def decode(number: bytes, payload: bytes) -> Batch:
    """Read the second and the third frame of a message.

    Raises:
        MalformedEventsError: they are not what they should be.
    """
    if len(number) != 8 or len(payload) > MAX_MESSAGE_BYTES:
        raise MalformedEventsError("not a sequence number, or too large")
    try:
        batch = msgspec.msgpack.decode(payload)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise MalformedEventsError(str(error)) from None
    if not isinstance(batch, list) or len(batch) < 2 or not isinstance(batch[1], list):
        raise MalformedEventsError("not an array of a time and events")
    rank = batch[2] if len(batch) > 2 and isinstance(batch[2], int) else 0
    if not 0 <= rank < MAX_RANKS:
        raise MalformedEventsError("no rank has such a number")
    return Batch(int.from_bytes(number, "big"), tuple(_events(batch[1])), rank)


def _events(items: list[Any]) -> Iterator[KvEvent]:
    for item in items:
        match _fields(item):
            case {"type": "BlockStored", **fields} if fields.get("medium") in (None, ON_GPU):
                yield _stored(fields)
            case {"type": "BlockRemoved", **fields} if fields.get("medium") in (None, ON_GPU):
                yield Removed(_hashes(fields))
            case {"type": "AllBlocksCleared"}:
                yield Cleared()


def _fields(item: Any) -> dict[Any, Any]:
    """Return the fields of an event by name, whichever form it has."""
    if isinstance(item, dict):
        return item
    if not isinstance(item, list) or not item:
        raise MalformedEventsError("an event is neither a map nor an array")
    names = {"BlockStored": _STORED_FIELDS, "BlockRemoved": _REMOVED_FIELDS}.get(str(item[0]), ())
    return {"type": item[0], **dict(zip(names, item[1:], strict=False))}


def _hashes(fields: dict[Any, Any]) -> tuple[int | bytes, ...]:
    hashes = fields.get("block_hashes")
    if not isinstance(hashes, list) or not set(map(type, hashes)) <= {int, bytes}:
        raise MalformedEventsError("block_hashes are neither numbers nor bytes")
    return tuple(hashes)


def _stored(fields: dict[Any, Any]) -> Stored:
    hashes = _hashes(fields)
    parent, ids, size = fields.get("parent_block_hash"), fields.get("token_ids"), fields.get("block_size")
    if not (parent is None or isinstance(parent, int | bytes)) or not isinstance(ids, list):
        raise MalformedEventsError("a stored block without its parent or its tokens")
    if not isinstance(size, int) or size < 1 or len(ids) != size * len(hashes) or not set(map(type, ids)) <= {int}:
        raise MalformedEventsError("a stored block whose tokens do not fill it")
    adapter = fields.get("lora_name") or ""
    return Stored(
        hashes, parent, tuple(ids), size, str(adapter), _extras(fields.get("extra_keys"), adapter, len(hashes))
    )


def _extras(given: Any, adapter: Any, blocks: int) -> tuple[tuple[str, ...], ...]:
    if given is None:
        return ((),) * blocks
    if (
        not isinstance(given, list)
        or len(given) != blocks
        or not all(each is None or isinstance(each, list) for each in given)
    ):
        raise MalformedEventsError("extra keys that are not one for each block")
    # The adapter is among them too.
    return tuple(tuple(str(key) for key in each or () if key != adapter) for each in given)


class CacheFollower:
    """Follows one engine's batches, and says what they mean for the fleet.

    A batch that is missing, or a number that begins anew, makes everything that is known doubtful: it is forgotten. A
    block whose parent is not known is passed over. The ranks of a data-parallel engine are taken for one cache.
    """

    def __init__(self, address: str, model: str, block_size: int | None = None) -> None:
        """Follow the engine at ``address``, whose prompts are hashed with ``model`` as their key.

        Blocks of another ``block_size``, in tokens, are passed over.
        """
        self.odd_size: int | None = None
        """The size of such a block, where one came."""
        self._address = address
        self._model = model
        self._block_size = block_size
        self._next: dict[int, int] = {}
        self._chained: OrderedDict[int | bytes, int] = OrderedDict()

    def expected(self, rank: int) -> int | None:
        """Return the number that the next batch of ``rank`` is to have; ``None`` where any will do."""
        return self._next.get(rank)

    def take(self, batch: Batch) -> list[FleetEvent]:
        """Return what ``batch`` changes."""
        expected = self._next.get(batch.rank, batch.number)
        events: list[FleetEvent] = [] if batch.number == expected else self.lost()
        self._next[batch.rank] = batch.number + 1
        for event in batch.events:
            events += self._understood(event)
        return events

    def lost(self) -> list[FleetEvent]:
        """Say that something was missed: what the engine has is not known any more."""
        self._chained.clear()
        self._next.clear()
        return [BlocksCleared(self._address)]

    def _understood(self, event: KvEvent) -> Iterator[FleetEvent]:
        match event:
            case Stored() if self._block_size not in {None, event.block_size}:
                self.odd_size = event.block_size
            case Stored():
                hashes = self._place(event)
                if hashes:
                    yield BlocksStored(self._address, hashes, event.block_size)
            case Removed(removed):
                known = tuple(self._chained.pop(number) for number in removed if number in self._chained)
                if known:
                    yield BlocksRemoved(self._address, known)
            case Cleared():
                self._chained.clear()
                yield BlocksCleared(self._address)

    def _place(self, event: Stored) -> tuple[int, ...]:
        """Return the chain hashes of stored blocks; none where their place is not known."""
        hashes: list[int] = []
        size = event.block_size
        above = None if event.parent is None else self._chained.get(event.parent)
        for place, number in enumerate(event.hashes):
            extras = event.extras[place]
            if event.parent is None and place == 0:
                above = prefix.root((event.adapter or self._model, *extras))
            elif above is None or extras:
                break  # its place is not known, or it has an image, of which nothing is known before it is sent
            try:
                (above,) = prefix.chain_ids(above, event.token_ids[place * size : (place + 1) * size], size)
            except OverflowError:
                break
            self._chained[number] = above
            hashes.append(above)
        while len(self._chained) > MAX_BLOCKS:
            self._chained.popitem(last=False)
        return tuple(hashes)
