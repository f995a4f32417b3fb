"""The families of the checks of engines."""

from prometheus_client import CollectorRegistry

from tidegate.telemetry.buckets import SCRAPE_BUCKETS
from tidegate.telemetry.families import FastCounter, FastHistogram


class CheckFigures:
    """Counts checks: by what they are called and what they found, both words of ours."""

    def __init__(self, registry: CollectorRegistry) -> None:
        """Register the families in ``registry``."""
        self._checks = FastCounter(
            "tidegate_engine_checks_total", "Checks of engines that are over.", ("check", "finding"), registry=registry
        )
        self._seconds = FastHistogram(
            "tidegate_engine_check_duration_seconds",
            "How long checks of engines took, those that asked nothing left out.",
            ("check",),
            buckets=SCRAPE_BUCKETS,
            registry=registry,
        )

    def checked(self, check: str, finding: str, seconds: float) -> None:
        """Count one; of 0 seconds, it asked nothing."""
        self._checks.labels(check, finding).inc()
        if seconds and finding != "skipped":
            self._seconds.labels(check).observe(seconds)
