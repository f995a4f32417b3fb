"""What one replica knows of the limits, and what it does while it cannot ask the store.

Every limit is divided by the number of replicas, and each keeps to its *share* while it cannot ask. How much of a
minute's or a day's share is used already is what was last seen of all replicas' use, divided likewise: so what was left
is shared out, whoever used the rest. Of what is in flight, everybody counts their own.

Of what was used without the store's knowledge, as much is *owed* to it as is still used: what a minute gave back
meanwhile is not. Requests in flight are told one by one. A request is *shared* while the store knows that it holds
something.
"""

import itertools
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from tidegate.scheduling.budget import DAY_SECONDS, Cost, Exceeded, Left, Limit, Window, by_name
from tidegate.scheduling.sharing import usage


class Account:
    """One limit of one scope, as far as this replica knows.

    Attributes:
        scope: whose limit it is.
        limit: the whole of it.
        used: how much of this replica's share of it is used.
        own: how much this replica used of it.
        unknown: how much of both the store does not know; 0 for what is in flight.
    """

    __slots__ = ("_at", "limit", "own", "scope", "unknown", "used")

    def __init__(self, scope: str, limit: Limit, now: float) -> None:
        self.scope = scope
        self.limit = limit
        self.used = 0.0
        self.own = 0.0
        self.unknown = 0.0
        self._at = now

    def refresh(self, now: float, parts: int) -> None:
        """Count what time gave back of one of ``parts`` parts until ``now``."""
        self.used = usage.after(self.limit, self.used, self._at, now, parts)
        self.own = usage.after(self.limit, self.own, self._at, now, parts)
        self.unknown = min(self.unknown, self.used)
        # A clock that goes back gives nothing back, and goes on from there; but no day comes twice.
        self._at = max(self._at, now) if self.limit.window is Window.DAY else now

    def take(self, amount: float, *, known: bool) -> None:
        """Use ``amount`` more, or give it back; ``known`` if the store does the same."""
        if not known and self.limit.window is not Window.IN_FLIGHT:
            self.unknown = max(0.0, self.unknown + amount)
        self.used = max(self.unknown, self.used + amount)
        self.own = max(0.0, self.own + amount)

    def see(self, total: float, now: float, parts: int) -> None:
        """Take note of how much all replicas used of it, as the store knows."""
        self.refresh(now, parts)
        self._at = now  # which is the store's time, whatever was taken for it before
        if self.limit.window is not Window.IN_FLIGHT:
            self.used = total / parts + self.unknown


class Held(NamedTuple):
    """What one request took.

    Attributes:
        accounts: from where.
        cost: how much.
        day: when, in days since the epoch.
        shared: whether the store knows.
    """

    accounts: tuple[Account, ...]
    cost: Cost
    day: int
    shared: bool


class Share:
    """A replica's share of all limits of all scopes, and who holds how much of it.

    Attributes:
        parts: by how many the limits are divided.
    """

    def __init__(self, parts: int = 1) -> None:
        """Divide by ``parts``."""
        self.parts = parts
        self._accounts: dict[str, dict[str, Account]] = {}
        self._held: dict[str, Held] = {}
        # What may be owed, and who may be untold; so that nobody has to look through all to find that nothing is.
        self._owing: dict[Account, None] = {}
        self._untold: dict[str, None] = {}

    def __len__(self) -> int:
        """Return how many requests hold something."""
        return len(self._held)

    def configure(self, limits: Mapping[str, Sequence[Limit]], now: float) -> None:
        """Take over the limits by scope; what was used of a limit that stays, under another amount too, is still used.

        Raises:
            ValueError: a limit is below 1, or given twice.
        """
        self._accounts = by_name(limits, lambda scope, limit: self._account(scope, limit, now))

    def _account(self, scope: str, limit: Limit, now: float) -> Account:
        known = self._accounts.get(scope, {}).get(limit.name)
        if known is None:
            return Account(scope, limit, now)
        known.refresh(now, self.parts)
        known.limit = limit
        return known

    def accounts(self, scopes: Iterable[str]) -> list[Account]:
        """Return the limits of ``scopes``."""
        return [account for scope in scopes for account in self._accounts.get(scope, {}).values()]

    def every(self) -> Iterator[Account]:
        """Yield all limits."""
        for accounts in self._accounts.values():
            yield from accounts.values()

    # -- requests

    def reserve(self, request_id: str, accounts: Iterable[Account], cost: Cost, now: float) -> Exceeded | None:
        """Take ``cost`` from this replica's share of all ``accounts``, or of none; return what is longest in the way.

        Raises:
            ValueError: the request holds something already.
        """
        accounts = tuple(accounts)
        worst: Exceeded | None = None
        for account in accounts:
            account.refresh(now, self.parts)
            needed = cost.of(account.limit.unit)
            found = usage.exceeded(account.scope, account.limit, account.used, needed, now, self.parts)
            if found is not None and (worst is None or found.wait_seconds > worst.wait_seconds):
                worst = found
        if worst is None:
            self._hold(request_id, accounts, cost, now, shared=False)
        return worst

    def seen(self, accounts: Iterable[Account], totals: Iterable[float], now: float) -> None:
        """Take note of how much all replicas use of ``accounts``."""
        for account, total in zip(accounts, totals, strict=True):
            account.see(total, now, self.parts)

    def granted(self, request_id: str, accounts: Iterable[Account], cost: Cost, now: float) -> None:
        """Take note of what the store let a request take; what is used after that, ``seen`` is told.

        Raises:
            ValueError: the request holds something already.
        """
        accounts = tuple(accounts)
        for account in accounts:
            account.refresh(now, self.parts)
        self._hold(request_id, accounts, cost, now, shared=True)

    def _hold(self, request_id: str, accounts: tuple[Account, ...], cost: Cost, now: float, *, shared: bool) -> None:
        if request_id in self._held:
            raise ValueError(f"request {request_id} holds its share already")
        for account in accounts:
            account.take(cost.of(account.limit.unit), known=shared)
        self._held[request_id] = Held(accounts, cost, math.floor(now / DAY_SECONDS), shared)
        if accounts and not shared:
            self._untold[request_id] = None
            self._owing |= dict.fromkeys(accounts)

    def holds(self, request_id: str) -> Held | None:
        """Return what a request took, ``None`` where it holds nothing."""
        return self._held.get(request_id)

    def settle(self, request_id: str, used: Cost | None, now: float) -> Held | None:
        """Correct what a request took by what it ``used``, or give it all back; return what it held, if anything."""
        held = self._held.pop(request_id, None)
        if held is None:
            return None
        self._untold.pop(request_id, None)
        if not held.shared:
            self._owing |= dict.fromkeys(held.accounts)
        for account in held.accounts:
            account.refresh(now, self.parts)
            unit, window = account.limit.unit, account.limit.window
            back = -held.cost.of(unit)
            if used is not None and window is not Window.IN_FLIGHT:
                back += used.of(unit)
            if back > 0 or window is not Window.DAY or math.floor(now / DAY_SECONDS) == held.day:
                account.take(back, known=held.shared)
        return held

    # -- what the store knows

    @property
    def has_untold(self) -> bool:
        """Whether there may be something that the store is to be told."""
        return bool(self._owing or self._untold)

    def owed(self, most: int, now: float) -> list[tuple[Account, float]]:
        """Return up to ``most`` debts: what was used without the store's knowledge, which it is told now."""
        owed = []
        for account in [*itertools.islice(self._owing, most)]:
            account.refresh(now, self.parts)
            if account.unknown > 0:
                owed.append((account, account.unknown))
                account.unknown = 0.0
            del self._owing[account]
        return owed

    def untold(self, most: int) -> list[tuple[str, Held]]:
        """Return up to ``most`` requests of which the store does not know, which it is told now."""
        untold = [(request_id, self._held[request_id]) for request_id in itertools.islice(self._untold, most)]
        for request_id, held in untold:
            self._held[request_id] = held._replace(shared=True)
            del self._untold[request_id]
        return untold

    def shared(self) -> Iterator[str]:
        """Yield the requests of which the store knows; those that no limit concerns are nothing to it."""
        return (request_id for request_id, held in self._held.items() if held.shared and held.accounts)

    def forgotten(self, now: float) -> None:
        """Take note that the store lost everything: all that is used here is owed to it again."""
        for account in self.every():
            account.refresh(now, self.parts)
            if account.limit.window is not Window.IN_FLIGHT:
                account.unknown = account.own
                account.used = max(account.used, account.own)
                self._owing[account] = None
        self._held = {request_id: held._replace(shared=False) for request_id, held in self._held.items()}
        self._untold = {request_id: None for request_id, held in self._held.items() if held.accounts}

    def given_back(self, request_ids: Collection[str], now: float) -> None:
        """Take note that the store gave back what these requests hold, because it had not heard of them for long."""
        for request_id in request_ids:
            held = self._held.get(request_id)
            if held is not None and held.shared:
                self._held[request_id] = held._replace(shared=False)
                self._untold[request_id] = None
                self._owing |= dict.fromkeys(held.accounts)
                for account in held.accounts:
                    account.refresh(now, self.parts)
                    if account.limit.window is not Window.IN_FLIGHT:
                        account.unknown = min(account.used, account.unknown + held.cost.of(account.limit.unit))

    def left(self, account: Account, now: float) -> Left:
        """Return what is left of this replica's share."""
        account.refresh(now, self.parts)
        return usage.left(account.limit, account.used, now, self.parts)
