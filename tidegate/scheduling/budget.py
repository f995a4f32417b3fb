"""What a tenant may use: so many requests and tokens a minute, so many in flight, so many a day.

*Reserve, then settle.* What a request will probably cost is taken from every limit before it is sent anywhere, or from
none, so that parallel requests cannot all pass. When its true cost is known the difference is given back, or taken:
a limit may then stand below zero, and is waited for. What a request held that died comes back whole.

A *minute*'s limit is a token bucket (capacity ``burst``, refilled evenly), a *day*'s a count that begins anew at
midnight UTC; both pay for what was used. What is *in flight* is given back when the request is over, used or not.

``now`` is in seconds since the epoch, on one clock for all that share a limit. A clock that goes back refills nothing.
"""

import enum
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from tidegate.scheduling.budget_image import BudgetsImage, Hold, Used

Kept = TypeVar("Kept")
"""How the use of one limit is kept."""

DAY_SECONDS = 86_400


class Unit(enum.Enum):
    """What a limit counts."""

    REQUESTS = "requests"
    INPUT_TOKENS = "input_tokens"
    OUTPUT_TOKENS = "output_tokens"
    TOKENS = "tokens"
    """Input and output together."""


class Window(enum.Enum):
    """Over what a limit counts."""

    MINUTE = "minute"
    DAY = "day"
    IN_FLIGHT = "in_flight"


@dataclass(frozen=True, slots=True)
class Limit:
    """One limit.

    Attributes:
        unit: what it counts.
        window: over what.
        amount: how much: a minute, a day, or at a time; 1 or more.
        burst: how much of a minute's limit may be used at once; ``None`` is a whole minute's.
    """

    unit: Unit
    window: Window
    amount: int
    burst: int | None = None

    @property
    def name(self) -> str:
        """Its name, such as ``tokens_per_minute``."""
        link = "" if self.window is Window.IN_FLIGHT else "per_"
        return f"{self.unit.value}_{link}{self.window.value}"

    @property
    def capacity(self) -> int:
        """The most that can be there at once."""
        return self.burst if self.burst is not None and self.window is Window.MINUTE else self.amount


class Cost(NamedTuple):
    """What a request takes of an engine, in tokens."""

    input_tokens: int
    output_tokens: int

    def of(self, unit: Unit) -> int:
        """Return how much of ``unit`` it is."""
        if unit is Unit.REQUESTS:
            return 1
        if unit is Unit.TOKENS:
            return self.input_tokens + self.output_tokens
        return self.input_tokens if unit is Unit.INPUT_TOKENS else self.output_tokens


class Exceeded(NamedTuple):
    """Why a request may not go on now.

    Attributes:
        scope: whose limit it is.
        limit: the limit.
        needed: how much the request asked of it.
        wait_seconds: when it may be tried again: true if nobody else comes first; infinite if it asks for more than the
            limit can ever give; for what is in flight, 0: that depends on when something ends.
    """

    scope: str
    limit: Limit
    needed: int
    wait_seconds: float


class Left(NamedTuple):
    """What is left of a limit.

    Attributes:
        limit: the limit.
        amount: what may be used now, 0 or more.
        reset_seconds: when the whole of it will be there again, if nothing is used; 0 for what is in flight.
    """

    limit: Limit
    amount: int
    reset_seconds: float


class _Account:
    """One limit of one scope, and what is left of it."""

    __slots__ = ("_at", "_capacity", "_day", "_level", "limit")

    def __init__(self, limit: Limit, now: float) -> None:
        self.limit = limit
        self._capacity = limit.capacity
        self._level = float(limit.capacity)
        self._at = now
        self._day = math.floor(now / DAY_SECONDS)

    def refill(self, now: float) -> None:
        if self.limit.window is Window.MINUTE and now > self._at:
            self._level = min(self._capacity, self._level + (now - self._at) * self.limit.amount / 60.0)
        elif self.limit.window is Window.DAY and (day := math.floor(now / DAY_SECONDS)) > self._day:
            # What was used beyond a day's limit is owed on the days after it.
            self._level = min(self._capacity, (day - self._day) * self._capacity + min(0.0, self._level))
            self._day = day
        self._at = max(self._at, now)

    def wait_for(self, amount: int, now: float) -> float:
        """Return how many seconds from ``now`` until there will be ``amount``; 0 if there is."""
        missing = amount - self._level
        if missing <= 0:
            return 0.0
        if amount > self._capacity:
            return math.inf
        if self.limit.window is Window.IN_FLIGHT:
            return 0.0
        if self.limit.window is Window.MINUTE:
            return missing * 60.0 / self.limit.amount
        days = max(1, math.ceil((amount - min(0.0, self._level)) / self._capacity))
        return (self._day + days) * DAY_SECONDS - now

    def has(self, amount: int) -> bool:
        return amount <= self._level or amount == 0

    def take(self, amount: float) -> None:
        self._level = min(self._capacity, self._level - amount)

    def left(self, now: float) -> Left:
        whole = max(0, math.floor(self._level))
        if self.limit.window is Window.IN_FLIGHT or self._level >= self._capacity:
            return Left(self.limit, whole, 0.0)
        if self.limit.window is Window.MINUTE:
            return Left(self.limit, whole, (self._capacity - self._level) * 60.0 / self.limit.amount)
        return Left(self.limit, whole, (self._day + 1) * DAY_SECONDS - now)

    def image(self, scope: str) -> Used:
        return Used(scope, self.limit.name, self._capacity - self._level, self._at, self._day)

    def restore(self, used: Used, now: float) -> None:
        """Begin where ``used`` says, and let flow back what has since; a clock that went back lets nothing."""
        self._level = min(float(self._capacity), self._capacity - used.amount)
        self._at, self._day = min(used.at, now), min(used.day, math.floor(now / DAY_SECONDS))
        self.refill(now)

    def change(self, limit: Limit) -> None:
        """Go on under another amount of the same limit: what is in use stays in use, and comes back to here."""
        self._level = limit.capacity - (self._capacity - self._level)
        self.limit, self._capacity = limit, limit.capacity


@dataclass(frozen=True, slots=True)
class _Held:
    """What one request took.

    Attributes:
        accounts: from where. Only there is anything given back: a limit that came later was not taken from.
        cost: how much.
        day: when, in days since the epoch: what is given back on another day was not taken from that one.
    """

    accounts: tuple[_Account, ...]
    cost: Cost
    day: int


def by_name(limits: Mapping[str, Sequence[Limit]], account: Callable[[str, Limit], Kept]) -> dict[str, dict[str, Kept]]:
    """Return the ``account`` of each limit, by scope and by the limit's name.

    Raises:
        ValueError: a limit is below 1, or given twice.
    """
    for scope, given in limits.items():
        if len({limit.name for limit in given}) < len(given) or any(limit.capacity < 1 for limit in given):
            raise ValueError(f"the limits of {scope} must be above zero, each given once")
    return {scope: {limit.name: account(scope, limit) for limit in given} for scope, given in limits.items()}


class Budgets:
    """All limits of all scopes, and who holds how much of them.

    A scope is whatever has limits: a tenant, a key, a tenant's use of one model. One that is not configured has none.
    """

    def __init__(self) -> None:
        self._accounts: dict[str, dict[str, _Account]] = {}
        self._held: dict[str, _Held] = {}

    def __len__(self) -> int:
        """Return how many requests hold something."""
        return len(self._held)

    def configure(self, limits: Mapping[str, Sequence[Limit]], now: float) -> None:
        """Take over the limits by scope; what was used of a limit that stays, under another amount too, is still used.

        Raises:
            ValueError: a limit is below 1, or given twice.
        """
        self._accounts = by_name(limits, lambda scope, limit: self._account(scope, limit, now))

    def _account(self, scope: str, limit: Limit, now: float) -> _Account:
        known = self._accounts.get(scope, {}).get(limit.name)
        if known is None:
            return _Account(limit, now)
        if known.limit != limit:
            known.refill(now)
            known.change(limit)
        return known

    def reserve(self, request_id: str, scopes: Iterable[str], cost: Cost, now: float) -> Exceeded | None:
        """Take ``cost`` from every limit of ``scopes``, or from none; return the limit that is longest in the way.

        Raises:
            ValueError: the request holds something already.
        """
        if request_id in self._held:
            raise ValueError(f"request {request_id} holds its share already")
        accounts = [(scope, account) for scope in scopes for account in self._accounts.get(scope, {}).values()]
        worst: Exceeded | None = None
        for scope, account in accounts:
            account.refill(now)
            needed = cost.of(account.limit.unit)
            if account.has(needed):
                continue
            exceeded = Exceeded(scope, account.limit, needed, account.wait_for(needed, now))
            if worst is None or exceeded.wait_seconds > worst.wait_seconds:
                worst = exceeded
        if worst is not None:
            return worst
        for _, account in accounts:
            account.take(cost.of(account.limit.unit))
        taken_from = tuple(account for _, account in accounts)
        self._held[request_id] = _Held(taken_from, cost, math.floor(now / DAY_SECONDS))
        return None

    def image(self) -> BudgetsImage:
        """Return what is to be kept over a restart."""
        kept = {
            id(account): (scope, name)
            for scope, accounts in self._accounts.items()
            for name, account in accounts.items()
            if account.limit.window is not Window.IN_FLIGHT
        }
        used = tuple(self._accounts[scope][name].image(scope) for scope, name in kept.values())
        held = tuple(
            Hold(request_id, tuple(kept[id(one)] for one in held.accounts if id(one) in kept), *held.cost, held.day)
            for request_id, held in self._held.items()
        )
        return BudgetsImage(used, tuple(one for one in held if one.limits))

    def restore(self, image: BudgetsImage, now: float) -> None:
        """Begin with what was kept, as far as there are such limits; nothing may have been taken yet.

        Raises:
            ValueError: something has.
        """
        if self._held:
            raise ValueError("something was taken already")
        for used in image.used:
            account = self._accounts.get(used.scope, {}).get(used.limit)
            if account is not None and account.limit.window is not Window.IN_FLIGHT and math.isfinite(used.amount):
                account.restore(used, now)
        for hold in image.held:
            found = (self._accounts.get(scope, {}).get(name) for scope, name in hold.limits)
            accounts = tuple(one for one in found if one is not None and one.limit.window is not Window.IN_FLIGHT)
            if accounts:
                self._held[hold.id] = _Held(accounts, Cost(hold.input_tokens, hold.output_tokens), hold.day)

    def holds(self, request_id: str) -> Cost | None:
        """Return what a request took, ``None`` where it holds nothing."""
        held = self._held.get(request_id)
        return None if held is None else held.cost

    def settle(self, request_id: str, used: Cost, now: float) -> bool:
        """Correct what a request took by what it ``used``; return whether it held anything.

        Nothing that it took is given back more than once, and no more than it took.
        """
        held = self._held.pop(request_id, None)
        if held is None:
            return False
        for account in held.accounts:
            account.refill(now)
            taken = held.cost.of(account.limit.unit)
            if account.limit.window is Window.IN_FLIGHT:
                account.take(-taken)
                continue
            difference = used.of(account.limit.unit) - taken
            another_day = account.limit.window is Window.DAY and math.floor(now / DAY_SECONDS) != held.day
            if difference > 0 or not another_day:
                account.take(difference)
        return True

    def release(self, request_id: str, now: float) -> bool:
        """Give back all that a request took, which was not served; return whether it held anything."""
        held = self._held.pop(request_id, None)
        if held is None:
            return False
        for account in held.accounts:
            account.refill(now)
            if account.limit.window is not Window.DAY or math.floor(now / DAY_SECONDS) == held.day:
                account.take(-held.cost.of(account.limit.unit))
        return True

    def left(self, scope: str, now: float) -> list[Left]:
        """Return what is left of each limit of ``scope``, in the order in which they were given."""
        accounts = self._accounts.get(scope, {}).values()
        for account in accounts:
            account.refill(now)
        return [account.left(now) for account in accounts]
