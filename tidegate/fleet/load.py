"""How busy an endpoint is: what its engine reported, plus what we sent there since.

An engine's gauges are late: they describe its last step before the scrape. A picker that trusts them alone sends a
burst to whoever looked idle a second ago. So our own reservations count at once, and the report only adds the load that
others have put there.
"""

import math
from dataclasses import dataclass, fields
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class EngineReport:
    """What an engine said of itself in one scrape; ``None`` means that it did not say.

    Attributes:
        running: requests in its batch.
        waiting: requests accepted and not yet in the batch.
        kv_usage: share of the KV cache in use, 0 to 1.
        kv_capacity_tokens: size of the KV cache in tokens.
        prompt_tokens_total: prompt tokens processed since its start.
        generation_tokens_total: tokens generated since its start.
        started_at: when it started, on a clock of its own; only whether it changes means something.
        max_adapters: how many LoRA adapters fit beside one another.
        running_adapters: the adapters of the requests in its batch, as far as it names them.
        waiting_adapters: the adapters that requests wait for, likewise.
    """

    running: float | None = None
    waiting: float | None = None
    kv_usage: float | None = None
    kv_capacity_tokens: float | None = None
    prompt_tokens_total: float | None = None
    generation_tokens_total: float | None = None
    started_at: float | None = None
    max_adapters: float | None = None
    running_adapters: frozenset[str] | None = None
    waiting_adapters: frozenset[str] | None = None


class AtWork(NamedTuple):
    """What is known of the work at one endpoint.

    Attributes:
        requests: requests of ours there.
        prefill_seconds: how long their prompts take at its pace, one after the other and nothing of them cached.
        report: what its engine said last; empty where that is too old, or it never did.
    """

    requests: int
    prefill_seconds: float
    report: EngineReport


IDLE = AtWork(0, 0.0, EngineReport())


def plausible(report: EngineReport) -> EngineReport:
    """Return ``report`` without what no gauge can mean: a value below zero, infinite or not a number is unknown."""
    values = (getattr(report, field.name) for field in fields(report))
    return EngineReport(*(value if _plausible(value) else None for value in values))


def _plausible(value: float | frozenset[str] | None) -> bool:
    return isinstance(value, frozenset) or (value is not None and 0 <= value < math.inf)


def restarted(before: EngineReport, after: EngineReport) -> bool:
    """Return whether the engine started anew between two of its reports: a counter fell, or it says so."""
    if before.started_at is not None and after.started_at is not None and before.started_at != after.started_at:
        return True
    counters = (
        (before.prompt_tokens_total, after.prompt_tokens_total),
        (before.generation_tokens_total, after.generation_tokens_total),
    )
    return any(was is not None and is_now is not None and is_now < was for was, is_now in counters)


def advanced(before: EngineReport, after: EngineReport) -> bool:
    """Return whether the engine got on with tokens between two of its reports."""
    counters = (
        (before.prompt_tokens_total, after.prompt_tokens_total),
        (before.generation_tokens_total, after.generation_tokens_total),
    )
    return any(was is not None and is_now is not None and is_now > was for was, is_now in counters)


def foreign_requests(report: EngineReport, own_at_report: int) -> float | None:
    """Return how many requests of others the engine was holding, as far as it says; ``None`` when it does not say.

    ``own_at_report`` is how many requests of ours were in flight there when the report was taken: that many of the
    reported ones are counted by the ledger already.
    """
    reported = [value for value in (report.running, report.waiting) if value is not None]
    return max(0.0, sum(reported) - own_at_report) if reported else None


class MeanTokens:
    """An exponentially weighted mean of tokens per request, seeded with a prior.

    No pool starts at zero, and one odd request moves the mean by no more than its share.
    """

    __slots__ = ("_weight", "value")

    def __init__(self, prior: float, weight: float = 0.05) -> None:
        """Start at ``prior`` tokens; each observation takes a share of ``weight``, 0 to 1."""
        self.value = prior
        self._weight = weight

    def observe(self, tokens: float) -> None:
        """Move the mean towards ``tokens``."""
        self.value += self._weight * (tokens - self.value)
