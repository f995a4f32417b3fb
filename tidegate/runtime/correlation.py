"""Which reservations a log entry is about, also when Envoy dropped our metadata, or had two of us decide.

An entry carries the reservation's id in the metadata of our decision. When the client leaves in the very moment of the
decision, we have delivered it and Envoy has thrown it away (measured: 1 of 1,005 requests that were cut off within ten
milliseconds). The entry then still bears the request's ``x-request-id``, which is why a reservation's id ends with it.
Our listener has Envoy give each request an id of its own, whatever a client says (measured).

A process that was stopped for a while decides on requests that are long over, or that another process has decided on:
then the entry comes first, and is remembered until the decision comes.
"""

import itertools
import re
import secrets
from collections import OrderedDict
from typing import Final

_SAFE = re.compile(r"[A-Za-z0-9_.-]{1,64}")
"""What may become part of our id: Envoy's own are UUIDs; one that a client made up may be anything."""

ENDED: Final = 20_000
"""Requests that ended, of which that is remembered: those of the last seconds, at a rate that keeps a process busy."""


class Correlation:
    """Gives ids to reservations, and finds them again. As large as the ledger: each reservation is forgotten."""

    def __init__(self) -> None:
        # Random, so that ids of an earlier process are never taken for ours.
        self._boot = secrets.token_hex(8)
        self._numbers = itertools.count(1)
        self._live: dict[str, list[str]] = {}
        self._ended: OrderedDict[str, None] = OrderedDict()

    def new_id(self, request_id: str) -> str:
        """Return an id that was never given before, for the request with this ``x-request-id``, empty when unknown."""
        suffix = f"/{request_id}" if _SAFE.fullmatch(request_id) else ""
        return f"{self._boot}-{next(self._numbers):x}{suffix}"

    def remember(self, reservation_id: str) -> None:
        """Note that a reservation was made."""
        if request_id := reservation_id.partition("/")[2]:
            self._live.setdefault(request_id, []).append(reservation_id)

    def forget(self, reservation_id: str) -> None:
        """Note that a reservation was released."""
        request_id = reservation_id.partition("/")[2]
        live = self._live.get(request_id, [])
        if reservation_id in live:
            live.remove(reservation_id)
            if not live:
                del self._live[request_id]

    def ended(self, request_id: str) -> tuple[str, ...]:
        """Note that a request ended; return the ids of the live reservations for it."""
        if request_id:
            self._ended[request_id] = None
            if len(self._ended) > ENDED:
                self._ended.popitem(last=False)
        return tuple(self._live.get(request_id, ()))

    def came_too_late(self, reservation_id: str) -> bool:
        """Return whether a decision is about a request that had ended before."""
        return reservation_id.partition("/")[2] in self._ended
