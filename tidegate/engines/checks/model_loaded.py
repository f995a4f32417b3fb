"""Whether the engine holds its model: ``/v1/models`` names it.

A fresh engine takes connections, and some answer at ``/health``, long before that.
"""

import aiohttp

from tidegate.engines import fetch
from tidegate.engines.api import api
from tidegate.engines.check import PASSED, Finding, Found, Subject, by_status
from tidegate.engines.model_list import MAX_BYTES, NotAListError, listed


async def ask(subject: Subject, session: aiohttp.ClientSession) -> Found:
    """Ask for the list of models."""
    url = subject.url(subject.check.path or api(subject.engine).models)
    status, body = await fetch.exchange(
        session, url, timeout_seconds=subject.seconds, max_bytes=MAX_BYTES, tls=subject.tls
    )
    if status != 200:
        return by_status(status)
    try:
        names = listed(body)
    except NotAListError:
        return Found(Finding.FAILED, "unreadable", "the answer is no list of models")
    wanted = (subject.check.model,) if subject.check.model else subject.models
    # Of several names that a pool serves, some may be made so on the way: one is enough unless one is asked for.
    if names.intersection(wanted) if wanted else names:
        return PASSED
    return Found(
        Finding.FAILED, "model_missing", f"{len(names)} models are listed, and not the one that is served here"
    )
