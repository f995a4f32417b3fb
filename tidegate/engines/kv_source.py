"""Where an engine publishes KV events, and how listening to it goes."""

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple


class KvSource(NamedTuple):
    """One engine's publisher.

    Attributes:
        address: the endpoint's.
        events_url: where events are published, such as ``tcp://10.0.0.7:5557``.
        replay_url: where they are repeated; empty for nowhere.
        topic: what a topic begins with that is listened to.
        block_size: tokens of a block.
    """

    address: str
    events_url: str
    replay_url: str = ""
    topic: str = ""
    block_size: int = 16


class KvOutcome(StrEnum):
    """What can happen; the label of a metric."""

    CONNECTED = "connected"
    DISCONNECTED = "disconnected"
    TAKEN = "taken"
    UNREADABLE = "unreadable"
    MISSED = "missed"
    ODD_SIZE = "odd_size"
    REPLAY = "replay"
    REPLAY_FAILED = "replay_failed"
    FAULT = "fault"


@dataclass(slots=True)
class KvStanding:
    """How it stands with one engine.

    Attributes:
        connected: it is being listened to.
        batches: that were taken in.
        missed: how often some were missing, so that all that was known had to be forgotten.
        unreadable: messages that were not understood.
        odd_size: tokens of its blocks where these are not what the configuration says.
    """

    connected: bool = False
    batches: int = 0
    missed: int = 0
    unreadable: int = 0
    odd_size: int | None = None
