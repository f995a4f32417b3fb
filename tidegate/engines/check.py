"""What a check is: one question to one engine, and what came of it."""

import enum
import math
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import aiohttp

from tidegate.certificates import Outgoing
from tidegate.config_checks import Check
from tidegate.engines.outcome import Outcome, ScrapeError


class Finding(enum.StrEnum):
    """What came of a question, in a set of words small enough for a metric label."""

    PASSED = "passed"
    FAILED = "failed"
    TIMED_OUT = "timed_out"
    """No answer within the deadline."""
    BUSY = "busy"
    """No answer within the deadline, or that it has too much to do; and its requests progress. That is no failure."""
    HOLLOW = "hollow"
    """A good answer, while no request progresses. That is no health."""
    SKIPPED = "skipped"
    """Nothing was asked: there is nothing to find out, or others are asked just now."""
    UNKNOWN = "unknown"
    """It cannot be told from the answer."""
    FAULT = "fault"
    """The check itself went wrong."""


class Found(NamedTuple):
    """What came of a question.

    Attributes:
        finding: in a word.
        reason: why, in a word of few; empty where that says it all.
        detail: for people; one line that quotes nothing the endpoint sent.
    """

    finding: Finding
    reason: str = ""
    detail: str = ""


class Standing(NamedTuple):
    """What is known of an endpoint without asking it.

    Attributes:
        inflight: requests of ours there.
        others: requests that its engine said it holds beyond those; ``None`` is unknown.
        still_seconds: for how long there has been no sign of progress, while requests of ours were there; 0 for none.
        moved: there was a sign of progress in the last seconds.
        since_moved: for how long there has been none, with or without requests; infinite where there never was one.
        counted: its engine's counters are known and fresh, so that no sign of progress means something.
        prefill_seconds: how long the prompts there may take before they show, at its pace.
    """

    inflight: int = 0
    others: float | None = None
    still_seconds: float = 0.0
    moved: bool = False
    counted: bool = False
    prefill_seconds: float = 0.0
    since_moved: float = math.inf


NOTHING_KNOWN = Standing()


@dataclass(frozen=True, slots=True)
class Subject:
    """Who is asked.

    Attributes:
        pool: its pool.
        address: ``ip:port``.
        engine: its dialect.
        models: the models that it should hold, where they are known by name.
        check: how it is asked.
        standing: what is known of it at this moment.
        tls: how it is connected to over TLS, if it is.
    """

    pool: str
    address: str
    engine: str
    models: tuple[str, ...]
    check: Check
    standing: Standing = NOTHING_KNOWN
    tls: Outgoing | None = None

    def url(self, path: str) -> str:
        """Return where ``path`` is."""
        return f"{'http' if self.tls is None else 'https'}://{self.address}{path}"

    @property
    def seconds(self) -> float:
        """The deadline."""
        return self.check.timeout


class Ask(Protocol):
    """The function of a check. It ends within the deadline, and raises nothing but ``ScrapeError``."""

    async def __call__(self, subject: Subject, session: aiohttp.ClientSession) -> Found:
        """Return what came of asking ``subject``."""
        ...


PASSED = Found(Finding.PASSED)

_FINDINGS = {Outcome.TIMEOUT: Finding.TIMED_OUT, Outcome.FAULT: Finding.FAULT}


def came_to_nothing(error: ScrapeError) -> Found:
    """Return what it means that a question was not answered."""
    return Found(_FINDINGS.get(error.outcome, Finding.FAILED), error.outcome.value, error.reason)


def by_status(status: int) -> Found:
    """Return what a status that was not hoped for means."""
    said = f"status {status}"
    if status in {401, 403}:
        return Found(Finding.UNKNOWN, "refused", f"{said}: it does not answer us")
    if status == 429:
        return Found(Finding.BUSY, "busy", said)
    return Found(Finding.FAILED, "status", said)
