"""What a simulated engine tells of its KV cache over ZMQ, in the format of vLLM 0.32.

As there, a batch is one step's worth, numbered from 0 at the engine's start; the last 10,000 are kept and repeated to
whoever asks at the replay port.
"""

import asyncio
import time
from array import array
from collections import deque
from collections.abc import Hashable, Sequence
from typing import Any, Final

import msgspec
import zmq
import zmq.asyncio

from tidegate.simulator.profiles import BLOCK_SIZE
from tidegate.simulator.prompts import ToldBlock

KEPT_BATCHES: Final = 10_000
QUEUED_MESSAGES: Final = 100_000
END_OF_REPLAY: Final = b"\xff" * 8


class KvPublisher:
    """Publishes what changes in one engine's cache."""

    def __init__(self, host: str, port: int, replay_port: int | None, topic: str = "") -> None:
        """Bind; port 0 for any free one.

        Raises:
            zmq.ZMQError: a port is taken.
        """
        self._topic = topic.encode()
        self._events: list[dict[str, Any]] = []
        self._kept: deque[tuple[int, bytes]] = deque(maxlen=KEPT_BATCHES)
        self._next = 0
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.PUB)
        self._socket.set_hwm(QUEUED_MESSAGES)
        self._replies = zmq.asyncio.Context.shadow(self._context.underlying).socket(zmq.ROUTER)
        try:
            self.port = _bound(self._socket, host, port)
            self.replay_port = None if replay_port is None else _bound(self._replies, host, replay_port)
        except zmq.ZMQError:
            self.close()
            raise

    def stored(self, key: Hashable) -> None:
        """Take note that the block ``key`` is cached now."""
        if not isinstance(key, ToldBlock):
            return
        last = self._events[-1] if self._events else None
        if last is not None and last["type"] == "BlockStored" and last["block_hashes"][-1] == _number(key.parent):
            last["block_hashes"].append(_number(key))
            last["token_ids"] += _ids(key)
            last["extra_keys"].append(None)
            return
        self._events.append(
            {
                "type": "BlockStored",
                "block_hashes": [_number(key)],
                "parent_block_hash": _number(key.parent) if key.parent else None,
                "token_ids": _ids(key),
                "block_size": BLOCK_SIZE,
                "lora_id": None,
                "medium": "GPU",
                "lora_name": None,
                "extra_keys": [None],
                "group_idx": 0,
                "kv_cache_spec_kind": "full_attention",
            }
        )

    def removed(self, key: Hashable) -> None:
        """Take note that it no longer is."""
        if isinstance(key, ToldBlock):
            self._events.append(
                {"type": "BlockRemoved", "block_hashes": [_number(key)], "medium": "GPU", "group_idx": 0}
            )

    def cleared(self) -> None:
        """Take note that none is."""
        self._events.append({"type": "AllBlocksCleared"})

    def flush(self) -> None:
        """Publish what happened since the last time, if anything did."""
        if not self._events:
            return
        payload = msgspec.msgpack.encode([time.time(), self._events, 0])
        self._events = []
        self._kept.append((self._next, payload))
        # A publisher never waits: what a subscriber has no room for is dropped.
        self._socket.send_multipart([self._topic, self._next.to_bytes(8, "big"), payload], zmq.NOBLOCK)
        self._next += 1

    async def repeat(self) -> None:
        """Answer those who ask for what they missed, until cancelled."""
        while True:
            frames: Sequence[bytes] = await self._replies.recv_multipart()
            if len(frames) != 3 or len(frames[2]) != 8:
                continue
            client, first = frames[0], int.from_bytes(frames[2], "big")
            for number, payload in [*self._kept]:
                if number >= first:
                    await self._replies.send_multipart([client, b"", self._topic, number.to_bytes(8, "big"), payload])
            await self._replies.send_multipart([client, b"", b"", END_OF_REPLAY, b""])
            await asyncio.sleep(0)

    def close(self) -> None:
        """Say no more."""
        self._socket.close(linger=0)
        self._replies.close(linger=0)
        self._context.term()


def _bound(socket: Any, host: str, port: int) -> int:
    socket.setsockopt(zmq.IPV6, 1)
    socket.bind(f"tcp://{f'[{host}]' if ':' in host else host}:{port or '*'}")
    return int(socket.getsockopt(zmq.LAST_ENDPOINT).rpartition(b":")[2].rstrip(b"\0"))


def _number(key: bytes) -> int:
    return int.from_bytes(key[:8], "big")


def _ids(key: ToldBlock) -> list[int]:
    return array("I", key.tokens).tolist()
