"""What Tidegate counts: the Prometheus families, and one method for each thing that happens.

Every label is bounded (``labels``). Latencies are those of good answers: a fast error must not look like a fast engine.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Metric, ProcessCollector, generate_latest
from prometheus_client.registry import Collector

from tidegate.fleet.endpoint import PoolSpec
from tidegate.fleet.evidence import Ending
from tidegate.fleet.view import PoolView
from tidegate.telemetry.buckets import (
    COUNT_BUCKETS,
    DECISION_BUCKETS,
    DURATION_BUCKETS,
    SCRAPE_BUCKETS,
    TPOT_BUCKETS,
    TTFT_BUCKETS,
)
from tidegate.telemetry.collector import CorrectionCollector, FleetCollector
from tidegate.telemetry.families import FastCounter, FastHistogram
from tidegate.telemetry.labels import Configured, Folded
from tidegate.telemetry.outcome import Outcome
from tidegate.telemetry.queues import QueueFigures
from tidegate.telemetry.record import RequestRecord
from tidegate.tokens.correction import Ratio

MAX_MODELS = 100
"""Model names with series of their own, besides those written out in the configuration."""

_WELL = frozenset({Ending.SERVED, Ending.NEUTRAL})

_MAX_OTHERS = 64
"""Distinct values of a label that our own code or an HTTP status fills."""


class _WithoutCreated(Collector):
    """A registry's families without the ``_created`` sample of each series: half the page, and nobody asks for them."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry

    def collect(self) -> Iterator[Metric]:
        for family in self._registry.collect():
            family.samples = [sample for sample in family.samples if not sample.name.endswith("_created")]
            yield family


class Metrics(QueueFigures):
    """All families of this process, in a registry of their own."""

    def __init__(
        self,
        views: Callable[[], Sequence[PoolView]],
        reservations: Callable[[], int],
        corrections: Iterable[Ratio] = (),
    ) -> None:
        """All are asked at each scrape (see ``FleetCollector`` and ``CorrectionCollector``)."""
        self.registry = CollectorRegistry()
        self.registry.register(FleetCollector(views, reservations))
        ProcessCollector(namespace="tidegate", registry=self.registry)
        self._endpoint, self._model = Configured(), Folded(MAX_MODELS)
        super().__init__(self.registry, Configured())
        # A model that has no series of its own gets none here either: one for all the others would mean nothing.
        self.registry.register(
            CorrectionCollector(corrections, self._pool, lambda model: self._model(model, admit=False))
        )
        self._api, self._code, self._policy = Folded(_MAX_OTHERS), Folded(_MAX_OTHERS), Folded(_MAX_OTHERS)
        self._reason, self._source, self._type = Folded(_MAX_OTHERS), Folded(_MAX_OTHERS), Folded(_MAX_OTHERS)
        self._ending = Folded(_MAX_OTHERS)
        self._make_request_families()
        self._make_control_families()

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return FastCounter(f"tidegate_{name}", text, labels, registry=self.registry)

    def _histogram(self, name: str, text: str, buckets: Sequence[float], *labels: str) -> Histogram:
        return FastHistogram(f"tidegate_{name}", text, labels, buckets=buckets, registry=self.registry)

    def _make_request_families(self) -> None:
        model = ("pool", "model")
        self._incoming = self._counter(
            "incoming_requests_total", "Requests that asked for an endpoint, those that got none included.", "pool"
        )
        self._requests = self._counter(
            "requests_total", "Requests that are over.", "pool", "model", "api", "code", "outcome"
        )
        self._picks = self._counter("picks_total", "Decisions for an endpoint.", "pool", "endpoint", "policy")
        self._refusals = self._counter("refusals_total", "Requests answered with an error of ours.", "api", "reason")
        self._prompt = self._counter("prompt_tokens_total", "Prompt tokens, as the engines counted.", *model)
        self._completion = self._counter("completion_tokens_total", "Output tokens, as the engines counted.", *model)
        self._cached = self._counter("cached_prompt_tokens_total", "Prompt tokens that were in a prefix cache.", *model)
        self._reasoning = self._counter("reasoning_tokens_total", "Output tokens that were thought only.", *model)
        self._unreported = self._counter(
            "unreported_tokens_total",
            "Tokens of answers whose engines told no usage, as estimated: of the prompt (`prompt`), as counted before "
            "the decision, and of the output that was delivered (`output`), by its size.",
            "pool",
            "model",
            "kind",
        )
        self._estimated = self._counter(
            "prompt_tokens_estimated_total",
            "Prompt tokens as we counted them, of the requests whose prompt tokens the engine counted too.",
            "pool",
            "source",
        )
        self._ttft = self._histogram(
            "time_to_first_token_seconds", "Of streamed answers, from the request's first byte.", TTFT_BUCKETS, *model
        )
        self._tpot = self._histogram(
            "time_per_output_token_seconds", "Of streamed answers, after the first token.", TPOT_BUCKETS, *model
        )
        self._duration = self._histogram(
            "request_duration_seconds", "Of whole answers, from first byte to last.", DURATION_BUCKETS, *model
        )
        self._usage_unknown = self._counter(
            "usage_unknown_total", "Good answers that came without readable token usage.", "pool"
        )
        self._read_in_part = self._counter(
            "answers_read_in_part_total",
            "Answers to be read on their way (`usage: stream`) that ended well, and were not read to their end.",
            "pool",
        )
        self._retries = self._counter("retries_total", "Attempts beyond a request's first.", "pool")
        self._failed_attempts = self._counter(
            "failed_attempts_total",
            "Attempts that speak against their endpoint, or that it was too busy for, by how they ended.",
            *("pool", "endpoint", "ending"),
        )
        self._failed_open = self._counter(
            "failed_open_total", "Requests that a pool took without a decision, as far as Envoy's log told.", "pool"
        )
        self._failovers = self._counter(
            "failovers_total", "Requests served by another endpoint than the one picked.", "pool"
        )

    def _make_control_families(self) -> None:
        counter, registry = self._counter, self.registry
        self._expired = counter("reservations_expired_total", "Reservations whose request's end was never reported.")
        self._log_malformed = counter("access_log_malformed_total", "Access-log input that came to nothing.")
        self._token_counts = counter("token_counts_total", "Prompts counted, by how.", "source")
        self._ext_proc_streams = counter("ext_proc_streams_total", "External-processing streams that ended.", "outcome")
        self._ext_proc_inflight = Gauge(
            "tidegate_ext_proc_inflight_streams", "External-processing streams that are open.", registry=registry
        )
        self._count_duration = self._histogram(
            "token_count_seconds", "Of counting a prompt's tokens, the wait for a thread included.", COUNT_BUCKETS
        )
        self._decision = self._histogram(
            "decision_seconds",
            "Of choosing an endpoint and reserving it, once the tokens are counted.",
            DECISION_BUCKETS,
        )
        tasks = Gauge("tidegate_tasks", "Tasks of the event loop, as a sign of leaks.", registry=registry)
        tasks.set_function(_tasks)
        self._xds_open = Gauge("tidegate_xds_open_streams", "Discovery streams that Envoys hold.", registry=registry)
        self._xds_pushes = counter("xds_pushes_total", "Discovery responses sent.", "type")
        self._xds_acks = counter("xds_acks_total", "Discovery responses accepted.", "type")
        self._xds_nacks = counter("xds_nacks_total", "Discovery responses rejected.", "type")
        self._reloads = counter("config_reloads_total", "Attempts to take over a changed configuration.", "result")
        self._reload_ok = Gauge(
            "tidegate_config_last_reload_success", "1 while the last file read is in force, else 0.", registry=registry
        )
        self._reload_ok.set(1)
        self._scrapes = counter("scrape_total", "Scrapes of engines.", "outcome")
        self._kv_events = counter("kv_events_total", "What came of listening to engines' KV caches.", "outcome")
        self._scrape_duration = self._histogram("scrape_duration_seconds", "Of one scrape.", SCRAPE_BUCKETS)

    def render(self) -> bytes:
        """Return the page for Prometheus, in its text format 0.0.4."""
        return generate_latest(_WithoutCreated(self.registry))

    def configure(self, pools: Sequence[PoolSpec], models: Iterable[str] = ()) -> None:
        """Admit the pools, endpoints and written-out models of ``pools``, and drop the series of what is gone.

        Further ``models`` are those that routes lead to a pool.

        Each pool's count of incoming requests starts at 0 here, before any request: a series that first appears at 1
        has a ``rate()`` of 0, and would never wake a pool that is scaled to zero.
        """
        gone = self._pool.replace(pool.name for pool in pools)
        gone_endpoints = self._endpoint.replace(endpoint.address for pool in pools for endpoint in pool.endpoints)
        named = (*(name for pool in pools for name in pool.models), *models)
        self._model.expect(name for name in named if "*" not in name)
        for address in gone_endpoints:
            self._picks.remove_by_labels({"endpoint": address})
            self._failed_attempts.remove_by_labels({"endpoint": address})
        for family in self._by_pool():
            for name in gone:
                family.remove_by_labels({"pool": name})
        for pool in pools:
            self._incoming.labels(pool.name)

    def _by_pool(self) -> tuple[Counter | Gauge | Histogram, ...]:
        return (
            *(self._incoming, self._requests, self._picks, self._prompt, self._completion, self._cached),
            *(self._estimated, self._ttft, self._tpot, self._duration),
            *(self._reasoning, self._unreported, self._read_in_part),
            *(self._usage_unknown, self._retries, self._failovers, self._failed_attempts),
            *self.queue_families(),
        )

    def received(self, pool: str) -> None:
        """Count a request that asked for an endpoint of ``pool``; empty when no pool serves its model."""
        self._incoming.labels(self._pool(pool)).inc()

    def picked(self, pool: str, endpoint: str, policy: str) -> None:
        """Count a decision for ``endpoint`` by ``policy``."""
        self._picks.labels(self._pool(pool), self._endpoint(endpoint), self._policy(policy)).inc()

    def refused(self, api: str, reason: str) -> None:
        """Count a request that we answered with an error."""
        self._refusals.labels(self._api(api), self._reason(reason)).inc()

    def request_ended(self, record: RequestRecord) -> None:
        """Count a request that is over."""
        pool = self._pool(record.pool)
        # A name that no engine ever answered to gets no series: a client cannot fill the table with inventions.
        model = self._model(record.model, admit=record.outcome is Outcome.OK)
        code = self._code(str(record.status))
        self._requests.labels(pool, model, self._api(record.api), code, record.outcome.value).inc()
        if record.failed_open:
            self._failed_open.labels(pool).inc()
        if record.attempts > 1:
            self._retries.labels(pool).inc(record.attempts - 1)
        for address, ending in record.tried:
            if ending not in _WELL:
                self._failed_attempts.labels(pool, self._endpoint(address), ending.value).inc()
        # Without an attempt it was an answer of our own, such as the list of models.
        if record.answered and record.attempts:
            self._answered(record, pool, model)

    def _answered(self, record: RequestRecord, pool: str, model: str) -> None:
        if record.stream and record.ttft_seconds is not None:
            self._ttft.labels(pool, model).observe(record.ttft_seconds)
        if record.outcome is Outcome.OK and record.duration_seconds is not None:
            self._duration.labels(pool, model).observe(record.duration_seconds)
        if record.seconds_per_output_token is not None:
            self._tpot.labels(pool, model).observe(record.seconds_per_output_token)
        if record.served is not None and record.named is not None and record.served != record.named:
            self._failovers.labels(pool).inc()
        if record.to_be_read and record.outcome is Outcome.OK and not record.final:
            self._read_in_part.labels(pool).inc()
        self._told(record, pool, model)
        self._not_told(record, pool, model)

    def _told(self, record: RequestRecord, pool: str, model: str) -> None:
        usage = record.usage
        if record.tells_usage and usage.prompt_tokens is None and usage.completion_tokens is None:
            self._usage_unknown.labels(pool).inc()
        if usage.prompt_tokens is not None:
            self._prompt.labels(pool, model).inc(usage.prompt_tokens)
            if record.estimated_prompt_tokens is not None:
                source = self._source(record.count_source)
                self._estimated.labels(pool, source).inc(record.estimated_prompt_tokens)
        if usage.completion_tokens is not None:
            self._completion.labels(pool, model).inc(usage.completion_tokens)
        if usage.cached_tokens is not None:
            self._cached.labels(pool, model).inc(usage.cached_tokens)
        if usage.reasoning_tokens is not None:
            self._reasoning.labels(pool, model).inc(usage.reasoning_tokens)

    def _not_told(self, record: RequestRecord, pool: str, model: str) -> None:
        if record.usage.prompt_tokens is None and record.estimated_prompt_tokens:
            self._unreported.labels(pool, model, "prompt").inc(record.estimated_prompt_tokens)
        if record.usage.completion_tokens is None and record.estimated_completion_tokens:
            self._unreported.labels(pool, model, "output").inc(record.estimated_completion_tokens)

    def reservation_expired(self) -> None:
        """Count a reservation that was released because no end was ever reported."""
        self._expired.inc()

    def access_log_malformed(self) -> None:
        """Count a piece of the access log that came to nothing."""
        self._log_malformed.inc()

    def tokens_counted(self, source: str, seconds: float) -> None:
        """Count a prompt whose tokens were counted, by how (``CountSource``), and how long it took."""
        self._token_counts.labels(self._source(source)).inc()
        self._count_duration.observe(seconds)

    def ext_proc_opened(self) -> None:
        """Count an external-processing stream as open."""
        self._ext_proc_inflight.inc()

    def ext_proc_closed(self, outcome: str) -> None:
        """Count such a stream as ended; call it once for each ``ext_proc_opened``."""
        self._ext_proc_inflight.dec()
        self._ext_proc_streams.labels(self._ending(outcome)).inc()

    def decided(self, seconds: float) -> None:
        """Record how long the choice of an endpoint took."""
        self._decision.observe(seconds)

    def xds_opened(self) -> None:
        """Count a discovery stream as open."""
        self._xds_open.inc()

    def xds_closed(self) -> None:
        """Count it as closed; call it once for each ``xds_opened``."""
        self._xds_open.dec()

    def xds_pushed(self, kind: str) -> None:
        """Count a discovery response that was sent; ``kind`` is the resource type."""
        self._xds_pushes.labels(self._type(kind)).inc()

    def xds_acked(self, kind: str) -> None:
        """Count a discovery response that an Envoy accepted."""
        self._xds_acks.labels(self._type(kind)).inc()

    def xds_nacked(self, kind: str) -> None:
        """Count a discovery response that an Envoy rejected."""
        self._xds_nacks.labels(self._type(kind)).inc()

    def config_reloaded(self, taken: bool) -> None:
        """Count a reload, and whether the configuration was taken over or refused."""
        self._reloads.labels("success" if taken else "failure").inc()
        self._reload_ok.set(taken)

    def scraped(self, outcome: str, seconds: float) -> None:
        """Count a scrape of an engine and how long it took."""
        self._scrapes.labels(self._ending(outcome)).inc()
        self._scrape_duration.observe(seconds)

    def kv_events(self, outcome: str) -> None:
        """Count something that came of listening to an engine's KV events."""
        self._kv_events.labels(self._ending(outcome)).inc()


def _tasks() -> int:
    """Return how many tasks there are; 0 outside an event loop."""
    try:
        return len(asyncio.all_tasks())
    except RuntimeError:
        return 0
