"""A gradual rollout: a canary's share grows step by step while it does as well as what it is to replace.

The canary is compared with the stable side of the same time: what troubles both, a burst or a slow network, speaks
against neither. It is judged with a margin of certainty, so that a few unlucky requests decide nothing, and the clearer
the fault the fewer requests are needed: of a canary that fails everything, three.
"""

import enum
import math
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

REMEMBERED = 2_000
"""Requests of each side that are looked at: the last ones."""

CERTAINTY = 2.58
"""Standard errors by which a bound is away from an estimate: 99 of 100 times the truth is inside."""

UNLIKELY = 1e-4
"""How probable failures may be, if the canary is no worse than allowed, for it to be taken for worse. It is asked once
a second for as long as a step lasts, so this is far below the usual 1 in 100."""

ENOUGH_TIMES = 20
"""Times that are needed of each side before they are compared; a bound on a ninth decile needs as many."""

QUANTILES = (0.5, 0.9)
"""At which times are compared: a canary may be slow for all, or for the unlucky."""


class Limits(NamedTuple):
    """How much worse than the stable side the canary may be.

    Attributes:
        min_requests: requests that a step needs at least before the next one.
        max_error_rate: share of failed requests, 0 to 1, beyond that of the stable side.
        max_ttft_ratio: times to the first token, as a multiple of the stable side's.
        max_tpot_ratio: likewise for the time between tokens.
    """

    min_requests: int = 50
    max_error_rate: float = 0.02
    max_ttft_ratio: float = 1.25
    max_tpot_ratio: float = 1.25


class Plan(NamedTuple):
    """How a canary grows.

    Attributes:
        steps: its shares of all requests, above 0 to 1, growing.
        pause_seconds: how long each step lasts at least.
        limits: what ends it.
    """

    steps: tuple[float, ...]
    pause_seconds: float
    limits: Limits = Limits()


class Phase(enum.Enum):
    """Where a rollout stands."""

    ADVANCING = "advancing"
    PAUSED = "paused"
    """It stays at its step until it is told to go on; it is still judged."""
    DONE = "done"
    ROLLED_BACK = "rolled_back"


class Standing(NamedTuple):
    """Where it stands, in a form that can be kept; ``reason`` is why it came there."""

    phase: Phase
    step: int
    reason: str = ""


class Sample(NamedTuple):
    """One request: whether it failed, and its times in seconds, as far as they are known."""

    failed: bool
    ttft: float | None = None
    tpot: float | None = None


class Side:
    """What is known of one side's last requests."""

    def __init__(self) -> None:
        self.samples: deque[Sample] = deque(maxlen=REMEMBERED)

    @property
    def requests(self) -> int:
        """How many are looked at."""
        return len(self.samples)

    @property
    def failures(self) -> int:
        """How many of these failed."""
        return sum(sample.failed for sample in self.samples)

    def ttfts(self) -> list[float]:
        """Return the times to the first token in ascending order."""
        return sorted(sample.ttft for sample in self.samples if sample.ttft is not None)

    def tpots(self) -> list[float]:
        """Return the times between tokens in ascending order."""
        return sorted(sample.tpot for sample in self.samples if sample.tpot is not None)


class Rollout:
    """One rollout. Time is the caller's, in seconds; one that goes back changes nothing."""

    def __init__(self, plan: Plan, now: float, standing: Standing | None = None) -> None:
        """Begin at the first step, or where it stood before.

        Raises:
            ValueError: there are no steps, or they do not grow, or leave 0 to 1.
        """
        steps = plan.steps
        if not steps or any(not 0 < step <= 1 for step in steps) or list(steps) != sorted(set(steps)):
            raise ValueError("expected at least one step, each above 0 and at most 1, and above the one before")
        self.plan = plan
        began = standing or Standing(Phase.ADVANCING, 0)
        self.standing = began._replace(step=max(0, min(began.step, len(steps) - 1)))
        self.canary, self.stable = Side(), Side()
        self._since = now

    @property
    def share(self) -> float:
        """The canary's share of all requests now, 0 to 1."""
        match self.standing.phase:
            case Phase.ROLLED_BACK:
                return 0.0
            case Phase.DONE:
                return 1.0
            case _:
                return self.plan.steps[self.standing.step]

    def observe(self, sample: Sample, *, canary: bool) -> None:
        """Take in the end of a request."""
        (self.canary if canary else self.stable).samples.append(sample)

    def tick(self, now: float) -> bool:
        """Judge at ``now``; return whether the share, or the phase, is another one now."""
        if self.standing.phase in {Phase.DONE, Phase.ROLLED_BACK}:
            return False
        if fault := self.fault():
            self._become(Phase.ROLLED_BACK, fault, now)
            return True
        if self.standing.phase is Phase.PAUSED or self.waits_for(now):
            return False
        self._forward("it did as well as the stable side", now)
        return True

    def waits_for(self, now: float) -> str:
        """Return what the next step waits for at ``now``; empty when for nothing."""
        left = self.plan.pause_seconds - (now - self._since)
        if left > 0:
            return f"{left:.0f} s more at this step"
        missing = self.plan.limits.min_requests - self.canary.requests
        return f"{missing} more requests of the canary" if missing > 0 else ""

    def fault(self) -> str:
        """Return in what the canary is surely worse than the limits allow; empty when in nothing."""
        limits, canary, stable = self.plan.limits, self.canary, self.stable
        # Without anything to compare with, a failure counts for what it is.
        usual = stable.failures / stable.requests if stable.requests else 0.0
        if chance(canary.failures, canary.requests, usual + limits.max_error_rate) < UNLIKELY:
            failed = f"{canary.failures} of {canary.requests} requests failed"
            return f"{failed}, {stable.failures} of {stable.requests} on the stable side"
        for name, ours, theirs, ratio in (
            ("TTFT", canary.ttfts(), stable.ttfts(), limits.max_ttft_ratio),
            ("TPOT", canary.tpots(), stable.tpots(), limits.max_tpot_ratio),
        ):
            for quantile in QUANTILES:
                if slower(ours, theirs, quantile, ratio):
                    mine, other = _at(ours, quantile), _at(theirs, quantile)
                    times = f"{mine * 1000:.0f} ms, {other * 1000:.0f} ms on the stable side"
                    return f"{name} p{quantile * 100:.0f} is {times}"
        return ""

    # -- by hand

    def pause(self) -> bool:
        """Stay at this step; return whether that is news."""
        if self.standing.phase is not Phase.ADVANCING:
            return False
        self.standing = self.standing._replace(phase=Phase.PAUSED, reason="by hand")
        return True

    def resume(self, now: float) -> bool:
        """Go on at the step where it was paused, which begins anew; return whether that is news."""
        if self.standing.phase is not Phase.PAUSED:
            return False
        self.standing = self.standing._replace(phase=Phase.ADVANCING, reason="by hand")
        self._begin_step(now)
        return True

    def promote(self, now: float) -> bool:
        """Go on: to the next step, from the last one to the end, or from a rollback to the first step.

        Returns whether that is news: of what is done it is not.
        """
        match self.standing.phase:
            case Phase.DONE:
                return False
            case Phase.ROLLED_BACK:
                self.standing = Standing(Phase.ADVANCING, 0, "by hand")
                self._begin_step(now)
            case _:
                self._forward("by hand", now)
        return True

    def rollback(self, now: float) -> bool:
        """Take everything from the canary, also from one that was done; return whether that is news."""
        if self.standing.phase is Phase.ROLLED_BACK:
            return False
        self._become(Phase.ROLLED_BACK, "by hand", now)
        return True

    def _forward(self, reason: str, now: float) -> None:
        step = self.standing.step + 1
        if step < len(self.plan.steps):
            self.standing = Standing(Phase.ADVANCING, step, reason)
            self._begin_step(now)
        else:
            self._become(Phase.DONE, reason, now)

    def _become(self, phase: Phase, reason: str, now: float) -> None:
        self.standing = self.standing._replace(phase=phase, reason=reason)
        self._since = now

    def _begin_step(self, now: float) -> None:
        """Judge the canary anew under its new share; the stable side's past is what it is compared with."""
        self._since = now
        self.canary = Side()


def chance(failures: int, requests: int, share: float) -> float:
    """Return how probable at least so many ``failures`` of ``requests`` are where each fails with ``share``.

    The exact tail of the binomial distribution, so that it holds for three requests as for two thousand.
    """
    if failures <= 0 or share >= 1:
        return 1.0
    if share <= 0:
        return 0.0
    odds = math.log(share) - math.log1p(-share)
    term = math.lgamma(requests + 1) + requests * math.log1p(-share)
    terms = (
        math.exp(term - math.lgamma(count + 1) - math.lgamma(requests - count + 1) + count * odds)
        for count in range(failures, requests + 1)
    )
    return min(1.0, math.fsum(terms))


def slower(ours: Sequence[float], theirs: Sequence[float], quantile: float, ratio: float) -> bool:
    """Return whether a quantile of ``ours`` is surely more than ``ratio`` times that of ``theirs``; both ascending.

    By order statistics (David and Nagaraja, Order Statistics, 2003, 7.1), which need no assumption on how times are
    spread: the sample that is surely below the one's quantile, against the one that is surely above the other's.
    """
    if len(ours) < ENOUGH_TIMES or len(theirs) < ENOUGH_TIMES:
        return False
    below, above = _rank(len(ours), quantile, -CERTAINTY), _rank(len(theirs), quantile, CERTAINTY)
    if below < 0 or above >= len(theirs):
        return False
    return ours[below] > ratio * theirs[above]


def _rank(count: int, quantile: float, errors: float) -> int:
    return round(count * quantile + errors * math.sqrt(count * quantile * (1 - quantile)))


def _at(ascending: Sequence[float], quantile: float) -> float:
    return ascending[min(len(ascending) - 1, int(len(ascending) * quantile))]
