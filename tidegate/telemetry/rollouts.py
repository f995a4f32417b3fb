"""What is shown of rollouts: as metrics, and as JSON."""

from collections.abc import Iterator, Mapping

from prometheus_client import CollectorRegistry, Counter
from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from tidegate.scheduling.rollout import Phase, Rollout, Side
from tidegate.telemetry.status import JsonObject


class RolloutFigures(Collector):
    """The rollouts, for Prometheus."""

    def __init__(self, registry: CollectorRegistry) -> None:
        """Show them in ``registry``."""
        self._rollouts: Mapping[str, Rollout] = {}
        self._moves = Counter(
            "tidegate_rollout_changes_total",
            "Steps, pauses and rollbacks of rollouts, by the phase that they led to.",
            ["route", "phase"],
            registry=registry,
        )
        registry.register(self)

    def configure(self, rollouts: Mapping[str, Rollout]) -> None:
        """Show ``rollouts``, by their routes' names."""
        for name in self._rollouts.keys() - rollouts.keys():
            for phase in Phase:
                self._moves.remove(name, phase.value)
        for name in rollouts.keys() - self._rollouts.keys():
            for phase in Phase:
                self._moves.labels(name, phase.value)
        self._rollouts = dict(rollouts)

    def moved(self, name: str, phase: Phase) -> None:
        """Count a change."""
        self._moves.labels(name, phase.value).inc()

    def describe(self) -> list[Metric]:
        """Return nothing: the names do not depend on what is shown."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Yield the shares and the phases."""
        shares = GaugeMetricFamily(
            "tidegate_rollout_share", "The canary's share of a rollout's requests, 0 to 1.", labels=["route"]
        )
        phases = GaugeMetricFamily("tidegate_rollout_phase", "1 for where a rollout stands.", labels=["route", "phase"])
        for name, rollout in self._rollouts.items():
            shares.add_metric([name], rollout.share)
            for phase in Phase:
                phases.add_metric([name, phase.value], float(rollout.standing.phase is phase))
        yield shares
        yield phases


def described(name: str, canary: str, stable: str, rollout: Rollout, now: float) -> JsonObject:
    """Return one rollout as JSON."""
    standing = rollout.standing
    return {
        "route": name,
        "canary": {"pool": canary, **_side(rollout.canary)},
        "stable": {"pool": stable, **_side(rollout.stable)},
        "phase": standing.phase.value,
        "step": standing.step + 1,
        "steps": [round(step * 100, 6) for step in rollout.plan.steps],
        "share_percent": round(rollout.share * 100, 6),
        "reason": standing.reason,
        "waits_for": rollout.waits_for(now) if standing.phase is Phase.ADVANCING else "",
    }


def _side(side: Side) -> JsonObject:
    return {
        "requests": side.requests,
        "failures": side.failures,
        "ttft_p50_seconds": _median(side.ttfts()),
        "tpot_p50_seconds": _median(side.tpots()),
    }


def _median(ascending: list[float]) -> float | None:
    return ascending[len(ascending) // 2] if ascending else None
