"""What the findings of one check of one endpoint come to: a verdict that a single one does not turn."""

from tidegate.config_checks import Check
from tidegate.engines.check import Finding, Found, Standing
from tidegate.fleet.evidence import Evidence, Verdict

_FAILURES = frozenset({Finding.FAILED, Finding.TIMED_OUT})


def seen_whole(found: Found, standing: Standing, check: Check) -> Found:
    """Return ``found`` in the light of what else is known of the endpoint.

    An engine whose requests progress is busy when it does not answer in time, and not ill; and one that answers while
    its requests stand still is not well.
    """
    if found.finding is Finding.TIMED_OUT and standing.moved:
        return found._replace(finding=Finding.BUSY)
    still = standing.counted and standing.still_seconds >= check.still_seconds + standing.prefill_seconds
    if found.finding is Finding.PASSED and standing.inflight and still:
        return found._replace(finding=Finding.HOLLOW, reason="no_progress")
    return found


class Tally:
    """Counts what a check found.

    Attributes:
        verdict: what that comes to.
        last: what was found last.
    """

    __slots__ = ("_failures", "_passes", "_said", "_said_at", "last", "verdict")

    def __init__(self) -> None:
        self.verdict = Verdict.UNKNOWN
        self.last: Found | None = None
        self._passes = self._failures = 0
        self._said: Evidence | None = None
        self._said_at = 0.0

    def take(self, found: Found, check: Check, now: float) -> Evidence | None:
        """Take in what was found at ``now`` (seconds); return what is to be said, where it is time to say anything."""
        self.last = found
        if found.finding is Finding.PASSED:
            self._failures, self._passes = 0, self._passes + 1
            if self.verdict is not Verdict.FAILED or self._passes >= check.rises:
                self.verdict = Verdict.SOUND
        elif found.finding in _FAILURES:
            self._passes, self._failures = 0, self._failures + 1
            if self._failures >= check.falls:
                self.verdict = Verdict.FAILED
        elif found.finding is Finding.HOLLOW:
            self._passes = 0
            if self.verdict is Verdict.SOUND:
                self.verdict = Verdict.UNKNOWN
        else:
            return None  # it lapses, unless another one says something
        return self._due(check, now)

    def _due(self, check: Check, now: float) -> Evidence | None:
        last = self.last
        reason = last.reason if self.verdict is Verdict.FAILED and last and last.finding in _FAILURES else ""
        if self.verdict is Verdict.FAILED and not reason and self._said is not None:
            said = self._said  # it passes, but not often enough yet
        else:
            reasons = (reason if "_" in reason else f"{check.name}_{reason}",) if reason else ()
            said = Evidence(check.name, self.verdict, reasons, last.detail if last and reason else "")
        said = said._replace(valid_seconds=check.valid_seconds)
        if self._said is not None and self._said[1:3] == said[1:3] and now - self._said_at < check.valid_seconds / 2:
            return None
        self._said, self._said_at = said, now
        return said
