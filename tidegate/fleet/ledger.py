"""What is in flight, and where: every request that was sent to an endpoint and has not ended.

A reservation is made by the decision itself and released exactly once: by whoever first learns that the request ended,
or when its lease runs out because nobody did. Releasing twice is harmless and says so.
"""

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple


class Reservation(NamedTuple):
    """One request's claim on one endpoint.

    Attributes:
        id: unique for all time, control-plane restarts included.
        pool: the pool that was chosen.
        address: the endpoint that was chosen.
        prompt_tokens: tokens to prefill.
        output_tokens: tokens expected to be generated.
        reserved_at: seconds on the caller's monotonic clock.
        uncached_tokens: those of the prompt that the endpoint probably does not have in its cache; ``None`` when that
            is not known.
        kind: what requests with answers of about the same length share, such as the model and the API.
        fingerprint: the same for the same request sent again; 0 where nobody wants to know.
    """

    id: str
    pool: str
    address: str
    prompt_tokens: int
    output_tokens: int
    reserved_at: float
    uncached_tokens: int | None = None
    kind: str = ""
    fingerprint: int = 0

    @property
    def tokens(self) -> int:
        """Tokens of KV cache that the request may come to hold."""
        return self.prompt_tokens + self.output_tokens


@dataclass(slots=True)
class Inflight:
    """The sum of the live reservations on one endpoint."""

    requests: int = 0
    prompt_tokens: int = 0
    tokens: int = 0


_NOTHING = Inflight()


class Ledger:
    """The live reservations, summed per endpoint."""

    def __init__(self, lease_seconds: float) -> None:
        """A reservation that is neither released nor renewed for ``lease_seconds`` is given up for lost."""
        self._lease = lease_seconds
        self._live: OrderedDict[str, tuple[Reservation, float]] = OrderedDict()
        self._inflight: dict[str, Inflight] = {}

    def __len__(self) -> int:
        return len(self._live)

    def __contains__(self, reservation_id: object) -> bool:
        return reservation_id in self._live

    def __iter__(self) -> Iterator[Reservation]:
        """Iterate over the live reservations, those whose lease runs out first going first."""
        return (reservation for reservation, _ in self._live.values())

    def addresses(self) -> Iterator[str]:
        """Iterate over the addresses that have something in flight."""
        return iter(self._inflight)

    def inflight(self, address: str) -> Inflight:
        """Return the sums for ``address``, all zero when nothing is there. Not to be changed by callers."""
        return self._inflight.get(address, _NOTHING)

    def reservation(self, reservation_id: str) -> Reservation | None:
        """Return a live reservation, or ``None`` when it is not live."""
        entry = self._live.get(reservation_id)
        return None if entry is None else entry[0]

    def reserve(self, reservation: Reservation, now: float) -> None:
        """Count ``reservation`` from now on.

        Raises:
            ValueError: its id is live already.
        """
        if reservation.id in self._live:
            raise ValueError(f"reservation {reservation.id} is live already")
        self._live[reservation.id] = (reservation, now + self._lease)
        sums = self._inflight.setdefault(reservation.address, Inflight())
        sums.requests += 1
        sums.prompt_tokens += reservation.prompt_tokens
        sums.tokens += reservation.tokens

    def release(self, reservation_id: str) -> Reservation | None:
        """Stop counting a reservation; return it, or ``None`` when it is not live (released before, or never made)."""
        entry = self._live.pop(reservation_id, None)
        if entry is None:
            return None
        reservation, _ = entry
        sums = self._inflight[reservation.address]
        sums.requests -= 1
        sums.prompt_tokens -= reservation.prompt_tokens
        sums.tokens -= reservation.tokens
        if sums.requests == 0:
            del self._inflight[reservation.address]
        return reservation

    def renew(self, reservation_id: str, now: float) -> bool:
        """Extend the lease of a live reservation; return whether there was one."""
        entry = self._live.get(reservation_id)
        if entry is None:
            return False
        self._live[reservation_id] = (entry[0], now + self._lease)
        self._live.move_to_end(reservation_id)
        return True

    def expire(self, now: float) -> list[Reservation]:
        """Release every reservation whose lease has run out, and return them.

        Leases are of one length, so the order of the dictionary is the order in which they run out.
        """
        lost: list[Reservation] = []
        while self._live:
            reservation_id, (reservation, until) = next(iter(self._live.items()))
            if until > now:
                break
            self.release(reservation_id)
            lost.append(reservation)
        return lost
