"""The certificates in use, as gauges: read when Prometheus asks."""

from collections.abc import Callable, Iterable, Iterator

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

Report = tuple[str, float | None, str]
"""The key in the configuration, when it ends (seconds since 1970) if there is one, and why a newer one is refused."""


class CertificateCollector(Collector):
    """Gauges of every certificate, labelled with the ``name`` of its key in the configuration."""

    def __init__(self, reports: Callable[[], Iterable[Report]]) -> None:
        """Read them from ``reports``."""
        self._reports = reports

    def describe(self) -> list[GaugeMetricFamily]:
        """Return nothing: the names do not depend on what is shown."""
        return []

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield the families."""
        ends = GaugeMetricFamily(
            "tidegate_certificate_expiry_timestamp_seconds",
            "When the certificate in use ends; of authorities, the first of them that has not ended.",
            labels=("name",),
        )
        refused = GaugeMetricFamily(
            "tidegate_certificate_refused",
            "1 where what is in its files now cannot be used, and the last good one goes on.",
            labels=("name",),
        )
        for name, expiry, reason in self._reports():
            if expiry is not None:
                ends.add_metric((name,), expiry)
            refused.add_metric((name,), float(bool(reason)))
        yield from (ends, refused)
