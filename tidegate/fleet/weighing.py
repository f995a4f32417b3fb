"""What the words of all sources about one endpoint come to, before its pool is looked at.

* A source whose word is no longer valid, or that says it does not know, speaks neither for nor against anybody. Only an
  agent that knew something and fell silent is worth a little doubt: its node gets less, and is not ejected for it.
* A failed connection, an open breaker, an agent's verdict and a lack of progress condemn alone.
* Any other check condemns only while no request makes progress: a busy engine answers late, and is not failed.
"""

import math
from collections.abc import Mapping
from typing import NamedTuple

from tidegate.fleet.evidence import Evidence, Verdict

CONNECTION, AGENT, BREAKER, PROGRESS = "connection", "agent", "breaker", "progress"
"""Sources that mean something here; every other one is a check."""

CONDEMN_ALONE = frozenset({CONNECTION, AGENT, BREAKER, PROGRESS})
HEARSAY = frozenset({AGENT})
"""Who tells of what we do not see ourselves; see ``max_ejected_on_hearsay``."""

HALF_OPEN = "half_open"
"""The reason of a breaker that lets one request at a time through, to see how it ends."""

AGENT_SILENT = "agent_silent"

PROGRESS_SECONDS = 10.0
"""How long a request that was served, or tokens that the engine counted, count as a sign of progress."""

FORGOTTEN_SECONDS = 3600.0
"""How long an agent's silence is worth a doubt; later its node is one without an agent."""

MAX_REASONS = 8
MAX_REASON = 64

Said = tuple[Evidence, float]
"""What a source said, and when, in seconds."""


class Weighed(NamedTuple):
    """What it comes to.

    Attributes:
        condemned: it should get nothing.
        hearsay: condemned, and by nobody but sources of hearsay.
        impaired: something speaks against it.
        reasons: for that, the worst first.
        detail: one line for people, of the worst.
        probing: its breaker lets one request at a time through, to see how it ends.
        until: when this may come to something else though nobody says anything, in seconds.
    """

    condemned: bool = False
    hearsay: bool = False
    impaired: bool = False
    reasons: tuple[str, ...] = ()
    detail: str = ""
    probing: bool = False
    until: float = math.inf


UNDISPUTED = Weighed()


def lasts_until(evidence: Evidence, at: float) -> float:
    """Return until when (seconds) what was said ``at`` counts; a length of time that cannot be is none."""
    return at + evidence.valid_seconds if evidence.valid_seconds >= 0 else at


def weigh(said: Mapping[str, Said], progressed_at: float, now: float) -> Weighed:
    """Return what was ``said`` comes to at ``now`` (seconds), with the last sign of progress at ``progressed_at``."""
    condemning: list[Evidence] = []
    checks: list[Evidence] = []
    impairing: list[Evidence] = []
    doubts: list[str] = []
    until, progresses = math.inf, now - progressed_at < PROGRESS_SECONDS
    for source, (evidence, at) in said.items():
        verdict, ends = evidence.verdict, lasts_until(evidence, at)
        if verdict is Verdict.UNKNOWN:
            continue
        if now >= ends:
            if source in HEARSAY and now < ends + FORGOTTEN_SECONDS:
                doubts.append(AGENT_SILENT)
            continue
        until = min(until, ends)
        if verdict is Verdict.SOUND:
            progresses |= source in {BREAKER, PROGRESS}
        elif verdict is Verdict.IMPAIRED:
            impairing.append(evidence)
        elif source in CONDEMN_ALONE:
            condemning.append(evidence)
        else:
            checks.append(evidence)
    if checks and progresses:
        impairing += checks
    else:
        condemning += checks
    if not (condemning or impairing or doubts):
        return UNDISPUTED if until == math.inf else Weighed(until=until)
    spoken = condemning + impairing
    return Weighed(
        condemned=bool(condemning),
        hearsay=bool(condemning) and all(one.source in HEARSAY for one in condemning),
        impaired=bool(impairing or doubts),
        reasons=_reasons(spoken, doubts),
        detail=next((one.detail for one in spoken if one.detail), ""),
        probing=any(HALF_OPEN in one.reasons for one in impairing),
        until=until,
    )


def _reasons(spoken: list[Evidence], doubts: list[str]) -> tuple[str, ...]:
    """Return the reasons without duplicates; a source that gives none is one itself."""
    named = [reason[:MAX_REASON] for one in spoken for reason in one.reasons or (one.source,)]
    return tuple(dict.fromkeys([*named, *doubts]))[:MAX_REASONS]
