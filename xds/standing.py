"""How it stands with a client: what it has, and what it refused."""

from collections.abc import Mapping
from typing import NamedTuple


class Parked(NamedTuple):
    """A version that a client refused, and that is not sent to it again; ``reason`` is the client's."""

    version: str
    reason: str


class Standing(NamedTuple):
    """How it stands with one type on one stream.

    Attributes:
        type_url: the type.
        held: how many resources the client applied.
        waits: a response is unanswered.
        parked: what it refused, by name.
    """

    type_url: str
    held: int
    waits: bool
    parked: Mapping[str, Parked]


class StreamStanding(NamedTuple):
    """How it stands with one stream.

    Attributes:
        node: the client, as it names itself.
        incremental: it speaks the delta variant.
        up_to_date: it answered for all that it should have.
        types: by type, those that it asked for.
        group: the group of Envoys that it is in; empty until something is published.
    """

    node: str
    incremental: bool
    up_to_date: bool
    types: tuple[Standing, ...]
    group: str = ""
