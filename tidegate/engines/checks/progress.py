"""Whether requests progress: the engine counts tokens, or requests of ours end, while some are there.

Nothing is asked; what is known from scrapes and from our own requests is looked at. A core that is frozen, or dead
behind a frontend that goes on sending keep-alive comments, answers every page, and shows here. An engine that does not
say what it does is not taken to stand still; but if nothing at all is heard of it, whoever asked looks whether anybody
is there (``inquiry``).
"""

import aiohttp

from tidegate.engines.check import PASSED, Finding, Found, Subject
from tidegate.engines.inquiry import NOTHING_HEARD, SILENT_SECONDS


async def ask(subject: Subject, session: aiohttp.ClientSession) -> Found:  # noqa: ARG001
    """Look whether anything moves."""
    standing, limit = subject.standing, subject.check.still_seconds
    if not standing.inflight:
        return Found(Finding.SKIPPED, "idle")
    if not standing.counted and standing.still_seconds >= SILENT_SECONDS + standing.prefill_seconds:
        return NOTHING_HEARD
    if standing.moved:
        return PASSED
    if not standing.counted:
        return Found(Finding.UNKNOWN, "uncounted", "the engine does not say what it does")
    if standing.still_seconds < limit + standing.prefill_seconds:
        return Found(Finding.UNKNOWN, "waiting")
    said = f"{standing.inflight} requests, and no token for {standing.still_seconds:.0f} s"
    return Found(Finding.FAILED, "no_progress", said)
