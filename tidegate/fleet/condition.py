"""The state of one endpoint through time: what it was, what speaks against it now, and so what it becomes.

Time is an argument. Should it go back, everything keeps its age; should it jump ahead, what was said is out of date.
"""

import math
from typing import NamedTuple

from tidegate.fleet.evidence import Evidence, Verdict
from tidegate.fleet.health import Health, HealthRules, HealthStatus
from tidegate.fleet.weighing import CONDEMN_ALONE, CONNECTION, HALF_OPEN, UNDISPUTED, Said, Weighed, weigh

MAX_SOURCES = 16
"""Sources that are heard of one endpoint."""

STEPS = 10
"""In how many steps a share grows: each is one more table for Envoy."""

JOINED, UNCONFIRMED, RECOVERED, RESUMED = "joined", "unconfirmed", "recovered", "resumed"
"""Reasons to warm up; ``unconfirmed`` is one that joined, and was waited for in vain."""

ANY, METRICS, SERVED = "any", "metrics", "served"
"""Signs that an endpoint is ready, beside the checks that it passes: it said how busy it is; a request was served
there, which is one whatever is waited for. ``any`` is each of them."""

UNREADY = "unready"
"""The reason for waiting: it has not shown that it is ready."""

SPARED, DISBELIEVED, CALMING = "spared", "disbelieved", "calming"
"""Reasons of ours: bad, and not ejected because too many are; bad by the word of an agent alone, as too many are at
once; no longer bad, but only just."""

_NEVER = -math.inf


class ConditionImage(NamedTuple):
    """A condition as plain data, as in ``Condition``."""

    said: tuple[tuple[str, Evidence, float], ...]
    health: Health
    draining: bool
    ejections: int
    hold_until: float
    freed_at: float
    condemned_at: float
    condemned_since: float
    disputed_at: float
    warm_from: float
    warm_reason: str
    progressed_at: float
    looked_at: float
    awaits: str
    awaited_from: float
    showed: bool


class Condition:
    """How one endpoint is.

    Attributes:
        said: what each source said last, and when.
        health: how it is.
        weighed: what the words of all sources came to, when that was last looked at.
        draining: an operator, or a directory, wants nothing new to get there.
        ejections: how often it was ejected of late, as it was when it was last ejected (see ``remembered``).
        hold_until: until when it is ejected at least.
        freed_at: when its last ejection ended.
        condemned_at: when it was last condemned, and ``condemned_since`` since when without a pause.
        disputed_at: when something last spoke against it.
        warm_from: since when it warms up; ``warm_reason`` says why.
        progressed_at: when a request was last seen to get somewhere.
        looked_at: the last time that was seen.
        look_again: when to look at it again, though nothing happens to it.
        awaits: the sign by which it is to show that it is ready; empty once it has been, or where none is needed.
        awaited_from: since when that is waited for.
        showed: whether the sign was seen.
    """

    __slots__ = (
        "awaited_from",
        "awaits",
        "condemned_at",
        "condemned_since",
        "disputed_at",
        "draining",
        "ejections",
        "freed_at",
        "health",
        "hold_until",
        "look_again",
        "looked_at",
        "progressed_at",
        "said",
        "showed",
        "warm_from",
        "warm_reason",
        "weighed",
    )

    def __init__(self) -> None:
        """Begin as one of whom nothing is known, which is as good as healthy."""
        self.said: dict[str, Said] = {}
        self.health = Health()
        self.weighed = UNDISPUTED
        self.draining = False
        self.ejections = 0
        self.hold_until = self.freed_at = self.condemned_at = self.disputed_at = self.progressed_at = _NEVER
        self.condemned_since = math.inf
        self.warm_from = _NEVER
        self.warm_reason = ""
        self.looked_at = self.awaited_from = _NEVER
        self.look_again = math.inf
        self.awaits, self.showed = "", False

    @property
    def is_plain(self) -> bool:
        """Whether it is healthy, with nothing that speaks against it."""
        return self.health.status is HealthStatus.HEALTHY and not (self.weighed.condemned or self.weighed.impaired)

    def hear(self, evidence: Evidence, now: float) -> bool:
        """Take in what a source says at ``now``; return whether the pool has to be looked at again."""
        if evidence.source not in self.said and len(self.said) >= MAX_SOURCES:
            return False
        self.said[evidence.source] = (evidence, now)
        before = self.weighed
        after = self.look(now)
        passed = evidence.verdict is Verdict.SOUND and evidence.source not in CONDEMN_ALONE
        showed = passed and self.shown(evidence.source, now)
        return showed or before[:3] != after[:3] or before.probing is not after.probing

    def join(self, rules: HealthRules, now: float, *, others: bool) -> None:
        """Begin as one that is new at ``now`` (seconds), with ``others`` there who serve meanwhile, or without."""
        self.health = self.health._replace(since=now)
        if others and rules.ready_by:
            self.awaits, self.awaited_from, self.look_again = rules.ready_by, now, now
        elif others:
            self.begin(JOINED, now)

    def shown(self, sign: str, now: float) -> bool:
        """Take in a ``sign`` of being ready; return whether that is news."""
        if not self.awaits or self.showed or (sign != SERVED and self.awaits not in {ANY, sign}):
            return False
        self.showed, self.look_again = True, now
        return True

    def presume(self) -> None:
        """Take it for ready, though it has shown nothing: from now on it is judged like any other."""
        self.awaits = ""

    def is_awaited(self, now: float, rules: HealthRules) -> bool:
        """Return whether it has not been ready yet, and is to get nothing for that at ``now`` (seconds).

        What speaks against it counts for as long as it does; that it shows nothing, for a time.
        """
        if not (self.awaits and rules.ready_by):
            return False
        waits = not self.showed and now - self.awaited_from < rules.ready_seconds
        return waits or self.is_unready

    def serves(self, now: float, rules: HealthRules) -> bool:
        """Return whether it has been ready, and nothing keeps it from serving at ``now`` (seconds)."""
        return not (self.weighed.condemned or self.is_awaited(now, rules) or self.is_held(now, rules))

    @property
    def is_unready(self) -> bool:
        """Whether something speaks against it that is seen from here."""
        # What agents alone say is for the pool to believe or not.
        return self.weighed.condemned and not self.weighed.hearsay

    def forget(self, source: str, now: float) -> None:
        """Have a source that is no more have said nothing."""
        if self.said.pop(source, None) is not None:
            self.look_again = now

    def drain(self, *, draining: bool, now: float) -> None:
        """Have it get nothing new, or something again."""
        if draining is not self.draining:
            self.draining, self.look_again = draining, now

    def look(self, now: float) -> Weighed:
        """Return what all that was said comes to at ``now`` (seconds), and remember it."""
        if now < self.looked_at:
            self._go_back(self.looked_at - now)
        self.looked_at = now
        weighed = self.weighed = weigh(self.said, self.progressed_at, now)
        if weighed.condemned:
            self.condemned_at = now
            self.condemned_since = min(self.condemned_since, now)
        else:
            self.condemned_since = math.inf
        if weighed.condemned or weighed.impaired:
            self.disputed_at = now
        self.look_again = weighed.until if self.is_plain else now
        return weighed

    def is_held(self, now: float, rules: HealthRules) -> bool:
        """Return whether it is ejected and cannot be let off yet, because of what was before ``now`` (seconds)."""
        if self.health.status is not HealthStatus.EJECTED:
            return False
        return now < min(self.hold_until, now + rules.max_hold_seconds) or now - self.condemned_at < rules.calm_seconds

    def begin(self, reason: str, now: float) -> None:
        """Have it warm up from ``now`` (seconds) on."""
        self.warm_from, self.warm_reason = now, reason
        self.look_again = now

    def become(
        self, *, out: bool, panic: bool, disbelieved: bool, now: float, rules: HealthRules, awaited: bool = False
    ) -> bool:
        """Become what follows from what was seen by the last ``look``; return whether the status is another.

        Args:
            out: it is to be ejected, or to stay so.
            panic: too many of its pool look bad, and all of them are to be used.
            disbelieved: what condemns it is not believed.
            now: the moment, in seconds.
            rules: where the lines are.
            awaited: it is to get nothing, because it has not been ready yet.
        """
        before, weighed = self.health, self.weighed
        if self.showed and not (awaited or self.is_unready):
            self.awaits = ""
        if before.status is HealthStatus.JOINING and not awaited:
            self.begin(JOINED if self.showed else UNCONFIRMED, now)
        elif before.status is HealthStatus.EJECTED and not out:
            self.freed_at = now
            if not panic and not weighed.condemned and not weighed.probing:
                self.begin(RECOVERED, now)
        elif HALF_OPEN in before.reasons and CALMING not in before.reasons and not (weighed.probing or out):
            self.begin(RECOVERED, now)
        elif before.status is HealthStatus.DRAINING and not self.draining:
            self.begin(RESUMED, now)
        if out and before.status is not HealthStatus.EJECTED:
            self._eject(now, rules)
        status, reasons = self._status(now, rules, out=out, disbelieved=disbelieved)
        if awaited:
            status, reasons = HealthStatus.JOINING, weighed.reasons if self.is_unready else (UNREADY,)
        share = 1.0 if panic else self._share(status, now, rules, disbelieved=disbelieved)
        since = before.since if status is before.status else now
        self.health = Health(status, reasons, since, share)
        self.look_again = weighed.until if self.is_plain else now
        return status is not before.status

    def remembered(self, now: float, rules: HealthRules) -> int:
        """Return how many of its ejections are not forgiven at ``now`` (seconds)."""
        if self.health.status is HealthStatus.EJECTED or self.freed_at == _NEVER or rules.forgive_seconds <= 0:
            return self.ejections
        forgiven = (now - self.freed_at) / rules.forgive_seconds
        return max(0, self.ejections - int(min(forgiven, self.ejections)))

    def _eject(self, now: float, rules: HealthRules) -> None:
        self.ejections = self.remembered(now, rules)
        hold = min(rules.max_hold_seconds, rules.hold_seconds * 2.0 ** min(self.ejections, 32))
        self.ejections = min(self.ejections + 1, 32)
        self.hold_until = now + hold
        self.warm_from = _NEVER

    def _status(
        self, now: float, rules: HealthRules, *, out: bool, disbelieved: bool
    ) -> tuple[HealthStatus, tuple[str, ...]]:
        weighed, before = self.weighed, self.health
        if self.draining:
            return HealthStatus.DRAINING, ("drain",)
        if out:
            return HealthStatus.EJECTED, weighed.reasons if weighed.condemned else before.reasons
        if weighed.condemned or weighed.impaired:
            spared = (DISBELIEVED if disbelieved else SPARED,) if weighed.condemned else ()
            return HealthStatus.DEGRADED, (*weighed.reasons, *spared)
        if before.status is HealthStatus.DEGRADED and now - self.disputed_at < rules.calm_seconds:
            return HealthStatus.DEGRADED, before.reasons if CALMING in before.reasons else (*before.reasons, CALMING)
        if now - self.warm_from < rules.warm_up_seconds:
            return HealthStatus.WARMING, (self.warm_reason,)
        return HealthStatus.HEALTHY, ()

    def _share(self, status: HealthStatus, now: float, rules: HealthRules, *, disbelieved: bool) -> float:
        share, weighed = 1.0, self.weighed
        if weighed.probing and not weighed.condemned:
            return share  # the breaker itself lets no more than one through
        if status is HealthStatus.DEGRADED:
            if weighed.condemned and not disbelieved:
                return rules.least_share
            share = rules.degraded_share
        if now - self.warm_from < rules.warm_up_seconds:
            grown = rules.least_share + (1.0 - rules.least_share) * (now - self.warm_from) / rules.warm_up_seconds
            share = min(share, max(rules.least_share, math.floor(grown * STEPS) / STEPS))
        return share

    def _go_back(self, seconds: float) -> None:
        """Move everything back in time, so that it keeps its age."""
        self.said = {source: (evidence, at - seconds) for source, (evidence, at) in self.said.items()}
        self.health = self.health._replace(since=self.health.since - seconds)
        self.hold_until -= seconds
        self.freed_at -= seconds
        self.condemned_at -= seconds
        self.condemned_since -= seconds
        self.disputed_at -= seconds
        self.warm_from -= seconds
        self.progressed_at -= seconds
        self.awaited_from -= seconds

    def image(self) -> ConditionImage:
        """Return it as plain data."""
        return ConditionImage(
            tuple((source, *what) for source, what in self.said.items()),
            self.health,
            self.draining,
            self.ejections,
            self.hold_until,
            self.freed_at,
            self.condemned_at,
            self.condemned_since,
            self.disputed_at,
            self.warm_from,
            self.warm_reason,
            self.progressed_at,
            self.looked_at,
            self.awaits,
            self.awaited_from,
            self.showed,
        )

    def restore(self, image: ConditionImage) -> None:
        """Become what ``image`` shows."""
        self.said = {source: (evidence, at) for source, evidence, at in image.said}
        (
            _,
            self.health,
            self.draining,
            self.ejections,
            self.hold_until,
            self.freed_at,
            self.condemned_at,
            self.condemned_since,
            self.disputed_at,
            self.warm_from,
            self.warm_reason,
            self.progressed_at,
            self.looked_at,
            self.awaits,
            self.awaited_from,
            self.showed,
        ) = image
        if math.isfinite(self.looked_at):
            self.look(self.looked_at)


def unreachable(reason: str) -> Evidence:
    """Return what several failed connections in a row say."""
    return Evidence(CONNECTION, Verdict.FAILED, ("unreachable",), reason)


REACHED = Evidence(CONNECTION, Verdict.SOUND)
