"""What is held to be true of what one source says: pure, time is an argument.

Additions count at once. What a source no longer says is removed at once, or when a later pass does not say it either;
and a source that suddenly says far less than before, or nothing at all, has to say so again after a pause, because that
is what a directory looks like that has lost its data, and dead endpoints are found out by other means. A failed pass
changes nothing.
"""

import enum
from collections.abc import Callable, Mapping
from typing import NamedTuple

from tidegate.discovery.contract import (
    MAX_ENDPOINTS,
    MAX_REASON,
    Failed,
    Found,
    News,
    Removed,
    Reset,
    Steered,
    Upserted,
)

MAX_NAMED = 3
"""Endpoints that are left out and named; of more, only the number is known."""

_TOO_MANY = f"more than {MAX_ENDPOINTS} of one source"


class Rules(NamedTuple):
    """What is taken for true.

    Attributes:
        allowed: whether requests may be sent to an address (``ip:port``).
        shrink: the share of the endpoints that may go without being confirmed, 0 to 1.
        hold_seconds: how long after more went, or all, a complete pass must say so again.
        linger_seconds: how long an endpoint must be missing until a complete pass without it removes it; 0 for at once.
        why_not: why an address is not allowed, where it is not.
    """

    allowed: Callable[[str], bool]
    shrink: float = 0.5
    hold_seconds: float = 30.0
    linger_seconds: float = 0.0
    why_not: str = "not allowed"


class LeftOut(NamedTuple):
    """An endpoint that a source says and that does not count, and why it does not."""

    address: str
    reason: str


class Stage(enum.Enum):
    """How far a source has come."""

    WAITING = "waiting"
    """No complete pass yet."""
    GOOD = "good"
    FAILING = "failing"
    """The last pass failed; what was known goes on."""
    HELD = "held"
    """It says far less than before, and has not confirmed that yet."""


class Held:
    """The endpoints of one source.

    Attributes:
        ready: a complete pass has been made.
        good_at: when the source was last heard well, in seconds; ``None`` before that.
        errors: failed passes.
        reason: why the last pass failed; empty when it did not.
        refused: endpoints that it says and that are left out: not allowed, or too many.
        left_out: the first of those, ``MAX_NAMED`` at the most.
    """

    def __init__(self, rules: Rules, before: tuple[Found, ...] = ()) -> None:
        """Hold what the source says by ``rules``; ``before``, as far as these allow it, goes on until a first pass."""
        self._rules = rules
        self._said: dict[str, Found] = {}
        self._shown = {found.endpoint.address: found for found in before if rules.allowed(found.endpoint.address)}
        self._size = len(self._shown)
        self._missing: dict[str, float] = {}
        self._shrunk_at: float | None = None
        self._pass_at = float("-inf")
        self._settled = True
        self.ready = False
        self.good_at: float | None = None
        self.errors = 0
        self.reason = ""
        self.refused = 0
        self.left_out: tuple[LeftOut, ...] = ()

    @property
    def endpoints(self) -> tuple[Found, ...]:
        """What is held to be true, each address once, in the order in which it was first said."""
        return tuple(self._shown.values())

    @property
    def stage(self) -> Stage:
        """How far the source has come."""
        if self.reason:
            return Stage.FAILING
        if not self.ready:
            return Stage.WAITING
        return Stage.GOOD if self._shrunk_at is None else Stage.HELD

    def take(self, news: News, now: float) -> None:
        """Take in ``news`` at ``now`` (seconds); ``settle`` draws the consequences."""
        match news:
            case Failed(reason):
                self.errors += 1
                self.reason = reason[:MAX_REASON] or "unknown"
                return
            case Steered():
                return  # it is not about endpoints
            case Upserted(key, found):
                # Whatever a source sends: what does not fit is not remembered.
                if key in self._said or len(self._said) < MAX_ENDPOINTS:
                    self._said[key] = found
            case Removed(key):
                self._said.pop(key, None)
            case Reset(found_by_key):
                self._said = dict(found_by_key)
                self.ready = True
                self._pass_at = now
        self.good_at, self.reason, self._settled = now, "", False

    def settle(self, now: float) -> bool:
        """Draw the consequences at ``now`` (seconds); return whether ``endpoints`` is another than before."""
        if not self.ready or self._settled:
            return False
        self._settled = True
        before = list(self._shown.values())
        wanted = self._wanted()
        holds = self._holds(len(wanted), now)
        for address in [*self._shown]:
            if address in wanted:
                self._missing.pop(address, None)
                continue
            since = self._missing.setdefault(address, now)
            if not holds and (not self._rules.linger_seconds or self._pass_at >= since + self._rules.linger_seconds):
                del self._shown[address], self._missing[address]
        self._shown.update(wanted)
        return before != list(self._shown.values())

    def due(self) -> float | None:
        """Return when a complete pass would confirm what is in doubt, in seconds; ``None`` when nothing is."""
        if self._shrunk_at is not None:
            return self._shrunk_at + self._rules.hold_seconds
        return min(self._missing.values()) + self._rules.linger_seconds if self._missing else None

    def asks(self, now: float) -> bool:
        """Return whether it is time to ask the source for the pass that confirms what it said."""
        due = self.due()
        return due is not None and now >= due

    def _wanted(self) -> Mapping[str, Found]:
        wanted: dict[str, Found] = {}
        left_out: list[LeftOut] = []
        self.refused = 0
        for found in self._said.values():
            address = found.endpoint.address
            # An address may be given anew before the last word on who had it: whoever stays is who has it.
            if address in wanted and (found.endpoint.drain or not wanted[address].endpoint.drain):
                continue
            allowed = self._rules.allowed(address)
            if len(wanted) >= MAX_ENDPOINTS or not allowed:
                self.refused += 1
                if len(left_out) < MAX_NAMED:
                    left_out.append(LeftOut(address, _TOO_MANY if allowed else self._rules.why_not))
                continue
            wanted[address] = found
        self.left_out = tuple(left_out)
        return wanted

    def _holds(self, size: int, now: float) -> bool:
        """Return whether a set of ``size`` is too small to be believed yet."""
        if size >= self._size * (1 - self._rules.shrink) and (size or not self._size):
            self._shrunk_at = None
        elif self._shrunk_at is None:
            self._shrunk_at = now
        if self._shrunk_at is not None and self._pass_at < self._shrunk_at + self._rules.hold_seconds:
            return True
        self._shrunk_at, self._size = None, size
        return False
