"""What tenants have used and may still use: for Prometheus, and as JSON.

Its labels are names out of the configuration alone: whatever a client sends makes no series.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from tidegate.scheduling.budget import Left
from tidegate.telemetry.families import FastCounter
from tidegate.telemetry.status import JsonObject

MAX_LIMITS: Final = 5000
"""Limits of which it is exported what is left; ``/tenants`` has them all."""

Budget = Mapping[str, Sequence[Left]]
"""What is left of each limit, by scope."""


class TenantFigures:
    """Counts what tenants do."""

    def __init__(self, registry: CollectorRegistry, left: Callable[[], Budget]) -> None:
        """Export to ``registry``; ``left`` is asked at each scrape."""
        registry.register(_Budgets(left))
        self._requests = FastCounter(
            "tidegate_tenant_requests_total",
            "Requests that the limits let in; the queue may still refuse them.",
            ("tenant",),
            registry=registry,
        )
        self._tokens = FastCounter(
            "tidegate_tenant_tokens_total",
            "Tokens of answered requests, by kind: `input` and `output`; as expected where nobody told them.",
            ("tenant", "kind"),
            registry=registry,
        )
        self._refusals = FastCounter(
            "tidegate_tenant_refusals_total",
            "Requests that a limit was in the way of.",
            ("tenant", "limit"),
            registry=registry,
        )
        self._unauthenticated = FastCounter(
            "tidegate_unauthenticated_total",
            "Requests that showed no valid credentials, by why: `missing`, `wrong`, `malformed`.",
            ("why",),
            registry=registry,
        )
        self._tenants: frozenset[str] = frozenset()

    def configure(self, tenants: Iterable[str]) -> None:
        """Drop the series of tenants that are gone, and begin those of new ones at 0."""
        known = frozenset(tenants)
        for gone in self._tenants - known:
            for family in (self._requests, self._tokens, self._refusals):
                family.remove_by_labels({"tenant": gone})
        self._tenants = known
        for tenant in known:
            self._requests.labels(tenant)

    def admitted(self, tenant: str) -> None:
        """Count a request that was let in."""
        if tenant in self._tenants:
            self._requests.labels(tenant).inc()

    def used(self, tenant: str, input_tokens: int, output_tokens: int) -> None:
        """Count what a request came to."""
        if tenant in self._tenants:
            self._tokens.labels(tenant, "input").inc(input_tokens)
            self._tokens.labels(tenant, "output").inc(output_tokens)

    def limited(self, tenant: str, limit: str) -> None:
        """Count a request that the limit of this name was in the way of."""
        if tenant in self._tenants:
            self._refusals.labels(tenant, limit).inc()

    def unauthenticated(self, why: str) -> None:
        """Count a request of which it is not known whose it is."""
        self._unauthenticated.labels(why).inc()


class _Budgets(Collector):
    """What is left, labelled ``scope`` (a tenant, a key, a tenant's use of a model) and ``limit``.

    Limits are those of the configuration, which a client cannot add to; still, thousands of keys would be too many.
    """

    def __init__(self, left: Callable[[], Budget]) -> None:
        self._left = left

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield what is left, and of how much."""
        budget = self._left()
        labels = ("scope", "limit")
        left = GaugeMetricFamily("tidegate_limit_left", "What may be used now.", labels=labels)
        amount = GaugeMetricFamily("tidegate_limit", "What may be used at once at the most.", labels=labels)
        every = [(scope, one) for scope, limits in budget.items() for one in limits]
        for scope, one in every[:MAX_LIMITS]:
            left.add_metric((scope, one.limit.name), one.amount)
            amount.add_metric((scope, one.limit.name), one.limit.capacity)
        yield left
        yield amount
        yield GaugeMetricFamily(
            "tidegate_limits_left_out",
            f"Limits that are in no series, of which there are {MAX_LIMITS} at most: the last of the configuration.",
            value=max(0, len(every) - MAX_LIMITS),
        )


def describe(scope: str, limits: Sequence[Left]) -> JsonObject:
    """Return the limits of ``scope`` and what is left of each."""
    return {
        "scope": scope,
        "limits": [
            {
                "limit": one.limit.name,
                "amount": one.limit.amount,
                "at_once": one.limit.capacity,
                "left": one.amount,
                "reset_seconds": math.ceil(one.reset_seconds * 10) / 10,
            }
            for one in limits
        ],
    }
