"""Whether a page answers with the status that it should.

Engines' own health pages do so while their core is frozen, or busy with shutting down.
"""

import aiohttp

from tidegate.engines import fetch
from tidegate.engines.api import api
from tidegate.engines.check import PASSED, Finding, Found, Subject, by_status

MAX_BYTES = 65_536


async def ask(subject: Subject, session: aiohttp.ClientSession) -> Found:
    """Ask for the page."""
    check = subject.check
    url = subject.url(check.path or api(subject.engine).health)
    status, _ = await fetch.exchange(
        session, url, timeout_seconds=subject.seconds, max_bytes=MAX_BYTES, tls=subject.tls
    )
    if status == check.status or (check.status is None and 200 <= status < 300):
        return PASSED
    found = by_status(status)
    # Whatever the status says elsewhere, this page is the one that says how the engine is.
    return found if check.status is None else found._replace(finding=Finding.FAILED)
