"""Whether the engine generates: a real request for one token.

It takes the engine's time from users, so it is rare, one endpoint of a pool at a time, and only where nothing runs:
an engine with requests shows by those how it is (``progress``, and the breaker).
"""

import aiohttp
import msgspec

from tidegate.engines import fetch
from tidegate.engines.api import api
from tidegate.engines.check import PASSED, Finding, Found, Subject, by_status
from tidegate.engines.model_list import MAX_BYTES, NotAListError, listed


async def ask(subject: Subject, session: aiohttp.ClientSession) -> Found:
    """Ask for a token, if it is idle."""
    standing = subject.standing
    if standing.inflight or standing.others:
        return Found(Finding.SKIPPED, "at_work")
    form, model = api(subject.engine), subject.check.model or next(iter(subject.models), "")
    if not model and not form.inputs:
        model = await _first(subject, session, form.models)
    status, body = await fetch.exchange(
        *(session, subject.url(subject.check.path or form.generate)),
        timeout_seconds=subject.seconds,
        max_bytes=MAX_BYTES,
        body=form.question(model),
        tls=subject.tls,
    )
    if status in {429, 503}:
        return Found(Finding.BUSY, "busy", f"status {status}")
    if status in {400, 405, 415, 422}:
        return Found(Finding.UNKNOWN, "refused", f"status {status}: it does not take the question")
    if status != 200:
        return by_status(status)
    if not generated(body):
        return Found(Finding.FAILED, "broken_answer", "the answer brings no text")
    return PASSED


async def _first(subject: Subject, session: aiohttp.ClientSession, path: str) -> str:
    """Return the first model that it lists; empty where it lists none."""
    status, body = await fetch.exchange(
        session, subject.url(path), timeout_seconds=subject.seconds, max_bytes=MAX_BYTES, tls=subject.tls
    )
    try:
        return min(listed(body), default="") if status == 200 else ""
    except NotAListError:
        return ""


def generated(body: bytes) -> bool:
    """Return whether ``body`` is an answer, in OpenAI's form or in TGI's, and no error in place of one."""
    try:
        answer = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    if isinstance(answer, list) and answer:
        answer = answer[0]
    if not isinstance(answer, dict) or answer.get("error"):
        return False
    choices = answer.get("choices")
    if isinstance(choices, list) and choices and isinstance(choices[0], dict):
        return choices[0].get("finish_reason") not in {"abort", "error"}
    return isinstance(answer.get("generated_text"), str)
