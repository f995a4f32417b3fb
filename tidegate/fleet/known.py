"""What can be asked of a fleet at any time."""

from collections.abc import Iterator, Mapping, Sequence

from tidegate.fleet.endpoint import EndpointSpec, PoolSpec
from tidegate.fleet.ledger import Ledger
from tidegate.fleet.load import IDLE, AtWork
from tidegate.fleet.member import Member, PoolState
from tidegate.fleet.others import Others, own_backlog
from tidegate.fleet.outlook import Outlook, outlook
from tidegate.fleet.pool_health import Alarm
from tidegate.fleet.prefix_match import PrefixMatch, PrefixTokens
from tidegate.fleet.quarantine import Quarantine
from tidegate.fleet.view import PoolView

Pools = dict[str, PoolState]
Endpoints = dict[str, Member]

STALE_AFTER = 5.0
"""Seconds after which a report no longer counts, unless the caller says otherwise."""


class Known:
    """All pools, their endpoints and what is in flight, as they are."""

    def __init__(self, lease_seconds: float, stale_after: float = STALE_AFTER) -> None:
        """Begin without pools.

        Args:
            lease_seconds: how long a reservation lives without a sign of its request (see ``ledger``).
            stale_after: how many seconds a report counts; must exceed the pause between two scrapes.
        """
        self.ledger = Ledger(lease_seconds)
        self.quarantine = Quarantine()
        self._stale_after = stale_after
        self._pools: Pools = {}
        self._endpoints: Endpoints = {}

    @property
    def pools(self) -> Mapping[str, PoolSpec]:
        """The declared pools by name, in the order of their declaration."""
        return {name: pool.spec for name, pool in self._pools.items()}

    def expected_output(self, pool: str, limit: int | None, kind: str = "") -> int:
        """Return how many tokens an answer in ``pool`` will probably have, never more than its ``limit`` in tokens.

        ``kind`` is that of the request (see ``Reservation``).

        Raises:
            KeyError: there is no such pool.
        """
        if limit is not None and limit <= 0:
            return 0
        return round(self._pools[pool].outputs.mean(kind, limit))

    def mix(self, pool: str) -> tuple[float, float]:
        """Return the mean tokens of the prompts and of the answers in ``pool``, as learned.

        Raises:
            KeyError: there is no such pool.
        """
        state = self._pools[pool]
        output = state.outputs.mean("", None)
        return max(1.0, state.request_tokens.value - output), output

    def longest_output(self, pool: str, limit: int | None, kind: str = "", share: float = 0.9) -> int:
        """Return the tokens that an answer exceeds with a chance of no more than ``1 - share``; else likewise.

        Raises:
            KeyError: there is no such pool.
        """
        if limit is not None and limit <= 0:
            return 0
        return round(self._pools[pool].outputs.quantile(kind, share, limit))

    def view(
        self,
        pool: str,
        now: float,
        places: Sequence[int] | None = None,
        cached: PrefixTokens | None = None,
    ) -> PoolView:
        """Return ``pool`` as it is at ``now`` (seconds).

        Args:
            pool: its name.
            now: the moment.
            places: where the endpoints stand that are asked for, in the order of their declaration; all by default.
            cached: how many tokens of the prompt at hand they have in their caches; none by default.

        Raises:
            KeyError: there is no such pool.
        """
        return self._pools[pool].view(self.ledger, now - self._stale_after, now, places, cached)

    def members(self, pool: str) -> tuple[EndpointSpec, ...]:
        """Return the endpoints of ``pool`` in the order of their declaration; the same tuple until that changes.

        Raises:
            KeyError: there is no such pool.
        """
        return self._pools[pool].spec.endpoints

    def is_well(self, pool: str) -> bool:
        """Return whether every endpoint of ``pool`` is healthy.

        Raises:
            KeyError: there is no such pool.
        """
        state = self._pools[pool]
        return state.health.well and len(state.judged) == len(state.members)

    def place(self, pool: str, address: str) -> int | None:
        """Return where ``address`` stands among the members of ``pool``; ``None`` when it is none of them.

        Raises:
            KeyError: there is no such pool.
        """
        return self._pools[pool].places.get(address)

    def cached(self, pool: str, prefix: Sequence[int]) -> PrefixMatch:
        """Return which endpoints of ``pool`` probably hold how many blocks of ``prefix``.

        Raises:
            KeyError: there is no such pool.
        """
        return self._pools[pool].prefixes.match(prefix)

    def views(self, now: float) -> tuple[PoolView, ...]:
        """Return all pools as they are at ``now`` (seconds)."""
        return tuple(self.view(name, now) for name in self._pools)

    def at_work(self, address: str, now: float) -> AtWork:
        """Return what is known at ``now`` (seconds) of the work at ``address``; nothing of one that is no member."""
        member = self._endpoints.get(address)
        return IDLE if member is None else member.at_work(self.ledger.inflight(address), now - self._stale_after)

    def addresses(self) -> Iterator[str]:
        """Iterate over the addresses of all endpoints."""
        return iter(self._endpoints)

    def in_flight(self, now: float) -> Iterator[tuple[str, Others]]:
        """Yield by address what is in flight of ours at ``now`` (seconds), as other replicas are told."""
        for address in self.ledger.addresses():
            own = self.ledger.inflight(address)
            member = self._endpoints.get(address)
            backlog = 0.0 if member is None else member.work.standing(now)[0]
            yield address, Others(own.requests, own.prompt_tokens, own.tokens, own_backlog(backlog, own.prompt_tokens))

    def alarms(self) -> dict[str, Alarm]:
        """Return by pool whether so many look bad that something else is the matter."""
        return {name: pool.health.alarm for name, pool in self._pools.items()}

    def outlook(self, address: str, now: float) -> Outlook | None:
        """Return why the endpoint at ``address`` is how it is at ``now`` (seconds); ``None`` when it is not known."""
        member = self._endpoints.get(address)
        for name, pool in self._pools.items():
            if member is not None and address in pool.places:
                rates, health = member.work.rates, pool.health
                return outlook(name, member.condition, rates, health.rules, health.alarm, now)
        return None
