"""Which reservation a log entry is about, also when Envoy dropped our metadata.

An entry carries the reservation's id in the metadata of our decision. When the client leaves in the very moment of the
decision, we have delivered it and Envoy has thrown it away (measured: 1 of 1,005 requests that were cut off within ten
milliseconds). The entry then still bears the request's ``x-request-id``, which is why a reservation's id ends with it.
"""

import itertools
import re
import secrets

_SAFE = re.compile(r"[A-Za-z0-9_.-]{1,64}")
"""What may become part of our id: Envoy's own are UUIDs; one that a client made up may be anything."""

_SEVERAL = ""


class Correlation:
    """Gives ids to reservations, and finds them again. As large as the ledger: each reservation is forgotten."""

    def __init__(self) -> None:
        # Random, so that ids of an earlier process are never taken for ours.
        self._boot = secrets.token_hex(8)
        self._numbers = itertools.count(1)
        self._by_request: dict[str, str] = {}

    def new_id(self, request_id: str) -> str:
        """Return an id that was never given before, for the request with this ``x-request-id``, empty when unknown."""
        suffix = f"/{request_id}" if _SAFE.fullmatch(request_id) else ""
        return f"{self._boot}-{next(self._numbers):x}{suffix}"

    def remember(self, reservation_id: str) -> None:
        """Note that a reservation was made."""
        if request_id := reservation_id.partition("/")[2]:
            # Two live requests with one id: a client made it up, and it tells nothing.
            self._by_request[request_id] = _SEVERAL if request_id in self._by_request else reservation_id

    def forget(self, reservation_id: str) -> None:
        """Note that a reservation was released."""
        self._by_request.pop(reservation_id.partition("/")[2], None)

    def find(self, request_id: str) -> str:
        """Return the id of the one live reservation for ``request_id``; empty when there is none, or no telling."""
        return self._by_request.get(request_id, _SEVERAL)
