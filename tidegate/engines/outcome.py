"""How a scrape can end, in a set of words small enough for a metric label."""

import enum
from typing import Protocol


class Outcome(enum.StrEnum):
    """What came of one scrape."""

    OK = "ok"
    """The page was read, or, for an engine without a page, the connection came about."""
    NO_SERIES = "no_series"
    """The page was read and has no series that the dialect knows and could make sense of."""
    UNREACHABLE = "unreachable"
    """No connection came about, TLS included where it is wanted: the one outcome that speaks against its life."""
    TIMEOUT = "timeout"
    """The connection stood and the page did not arrive in time."""
    STATUS = "status"
    """The answer had another status than 200; redirects are among these."""
    TOO_LARGE = "too_large"
    """The page has more bytes, lines or series than allowed."""
    UNREADABLE = "unreadable"
    """The answer was no metrics page: not HTTP, cut off, compressed, HTML, JSON."""
    FAULT = "fault"
    """The scraper itself went wrong."""


class ScrapeError(Exception):
    """A scrape brought no report.

    Attributes:
        outcome: what came of it.
        reason: for logs; one line that quotes nothing the endpoint sent.
    """

    def __init__(self, outcome: Outcome, reason: str) -> None:
        super().__init__(reason)
        self.outcome = outcome
        self.reason = reason


class Observer(Protocol):
    """Takes note of every scrape, for metrics."""

    def __call__(self, address: str, outcome: str, seconds: float) -> None:
        """Note that a scrape of ``address`` took ``seconds`` and ended in ``outcome``, the value of an ``Outcome``."""
        ...


def unobserved(address: str, outcome: str, seconds: float) -> None:
    """Take note of nothing."""
