"""The ``/metrics`` page of a simulated engine, under the names of vLLM 0.32 or under older ones.

Everything that vLLM tells and the model knows is there, and a few series that are always zero here but that dashboards
and scrapers ask for. The content type is vLLM's too, whatever the client accepts.
"""

from collections.abc import Iterator, Mapping

from tidegate.simulator.profiles import BLOCK_SIZE
from tidegate.simulator.settings import EngineSettings
from tidegate.simulator.stats import Counters, Gauges, Histogram

CONTENT_TYPE = "text/plain; version=1.0.0; charset=utf-8"


def render(settings: EngineSettings, gauges: Gauges, counters: Counters, started_at: float) -> str:
    """Return the page; ``started_at``: seconds since 1970."""
    page = _Page(settings.model, started_at)
    old = settings.metrics_names == "old"
    return "\n".join(
        [
            *page.process(),
            *(_old_gauges(page, gauges) if old else _current_gauges(page, gauges)),
            *(_old_counters(page, counters) if old else _current_counters(page, counters)),
            *_shared_counters(page, counters),
            *_shared_histograms(page, counters),
            *_token_latency(page, counters, old),
            *page.cache_config(settings),
            "",
        ]
    )


class _Page:
    """Writes families of samples; all of the engine's bear its number and the model's name."""

    def __init__(self, model: str, started_at: float) -> None:
        self._model = _escaped(model)
        self._started_at = started_at

    def gauge(self, name: str, text: str, value: float) -> Iterator[str]:
        yield from _heading(name, text, "gauge")
        yield self._sample(name, value)

    def labelled(self, name: str, text: str, kind: str, label: str, values: Mapping[str, float]) -> Iterator[str]:
        yield from _heading(name, text, kind)
        for each, value in values.items():
            yield self._sample(name, value, {label: each})

    def counter(self, name: str, text: str, value: float) -> Iterator[str]:
        """Write a counter, and as vLLM does the gauge that tells when it began."""
        yield from _heading(f"{name}_total", text, "counter")
        yield self._sample(f"{name}_total", value)
        yield from self.gauge(f"{name}_created", text, self._started_at)

    def histogram(self, name: str, text: str, histogram: Histogram) -> Iterator[str]:
        yield from _heading(name, text, "histogram")
        below = 0
        for bound, count in zip([*map(str, histogram.bounds), "+Inf"], histogram.counts, strict=True):
            below += count
            yield self._sample(f"{name}_bucket", below, {"le": bound})
        yield self._sample(f"{name}_count", below)
        yield self._sample(f"{name}_sum", histogram.sum)
        yield from self.gauge(f"{name}_created", text, self._started_at)

    def rejections(self, values: Mapping[str, float]) -> Iterator[str]:
        """Write the one family that bears no engine number."""
        name = "vllm:admission_rejections_total"
        yield from _heading(name, "Number of admission attempts rejected by a queue limit, by reason.", "counter")
        for reason, value in values.items():
            yield f'{name}{{model_name="{self._model}",reason="{reason}"}} {float(value)}'

    def process(self) -> Iterator[str]:
        name = "process_start_time_seconds"
        yield from _heading(name, "Start time of the process since unix epoch in seconds.", "gauge")
        yield f"{name} {self._started_at}"

    def cache_config(self, settings: EngineSettings) -> Iterator[str]:
        profile = settings.profile
        labels = {
            "block_size": BLOCK_SIZE,
            "cache_dtype": "auto",
            "enable_prefix_caching": True,
            "engine": 0,
            "gpu_memory_utilization": 0.92,
            "kv_cache_max_concurrency": profile.kv_tokens / settings.context_tokens,
            "kv_cache_size_tokens": profile.kv_tokens,
            "num_cpu_blocks": None,
            "num_gpu_blocks": profile.num_gpu_blocks,
            "num_gpu_blocks_override": None,
            "prefix_caching_hash_algo": "sha256",
            "sliding_window": None,
        }
        yield from _heading("vllm:cache_config_info", "Information of the LLMEngine CacheConfig", "gauge")
        yield f"vllm:cache_config_info{{{_written(labels)}}} 1.0"

    def _sample(self, name: str, value: float, more: Mapping[str, str] | None = None) -> str:
        labels = {"engine": "0", "model_name": self._model, **(more or {})}
        return f"{name}{{{_written(dict(sorted(labels.items())))}}} {float(value)}"


def _heading(name: str, text: str, kind: str) -> Iterator[str]:
    yield f"# HELP {name} {text}"
    yield f"# TYPE {name} {kind}"


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _written(labels: Mapping[str, object]) -> str:
    return ",".join(f'{label}="{value}"' for label, value in labels.items())


def _current_gauges(page: _Page, gauges: Gauges) -> Iterator[str]:
    yield from _queue_gauges(page, gauges)
    name = "vllm:num_requests_waiting_by_reason"
    waiting = {"capacity": gauges.waiting, "deferred": 0}
    yield from page.labelled(name, "Number of waiting requests by reason.", "gauge", "reason", waiting)
    states = {"awake": 1, "weights_offloaded": 0, "discard_all": 0}
    yield from page.labelled("vllm:engine_sleep_state", "Engine sleep state.", "gauge", "sleep_state", states)
    text = "KV-cache usage. 1 means 100 percent usage."
    yield from page.gauge("vllm:kv_cache_usage_perc", text, gauges.kv_usage)


def _old_gauges(page: _Page, gauges: Gauges) -> Iterator[str]:
    yield from _queue_gauges(page, gauges)
    yield from page.gauge("vllm:num_requests_swapped", "Number of requests swapped to CPU.", 0)
    text = "GPU KV-cache usage. 1 means 100 percent usage."
    yield from page.gauge("vllm:gpu_cache_usage_perc", text, gauges.kv_usage)
    text = "CPU KV-cache usage. 1 means 100 percent usage."
    yield from page.gauge("vllm:cpu_cache_usage_perc", text, 0)


def _queue_gauges(page: _Page, gauges: Gauges) -> Iterator[str]:
    text = "Number of requests in model execution batches."
    yield from page.gauge("vllm:num_requests_running", text, gauges.running)
    yield from page.gauge("vllm:num_requests_waiting", "Number of requests waiting to be processed.", gauges.waiting)


def _current_counters(page: _Page, counters: Counters) -> Iterator[str]:
    yield from _prefix_cache(page, counters, "vllm:prefix_cache")
    cached = counters.cached_prompt_tokens
    sources = {
        "local_compute": counters.prompt_tokens - cached,
        "local_cache_hit": cached,
        "external_kv_transfer": 0,
    }
    name = "vllm:prompt_tokens_by_source_total"
    yield from page.labelled(name, "Number of prompt tokens by source.", "counter", "source", sources)
    text = "Number of cached prompt tokens (local + external)."
    yield from page.counter("vllm:prompt_tokens_cached", text, cached)
    yield from page.rejections({"max_num_queued_reqs": counters.rejections, "max_num_queued_tokens": 0})


def _old_counters(page: _Page, counters: Counters) -> Iterator[str]:
    yield from _prefix_cache(page, counters, "vllm:gpu_prefix_cache")


def _prefix_cache(page: _Page, counters: Counters, name: str) -> Iterator[str]:
    text = "Prefix cache queries, in terms of number of queried tokens."
    yield from page.counter(f"{name}_queries", text, counters.prefix_queries)
    text = "Prefix cache hits, in terms of number of cached tokens."
    yield from page.counter(f"{name}_hits", text, counters.prefix_hits)


def _shared_counters(page: _Page, counters: Counters) -> Iterator[str]:
    text = "Cumulative number of preemption from the engine."
    yield from page.counter("vllm:num_preemptions", text, counters.preemptions)
    yield from page.counter("vllm:prompt_tokens", "Number of prefill tokens processed.", counters.prompt_tokens)
    text = "Number of generation tokens processed."
    yield from page.counter("vllm:generation_tokens", text, counters.generation_tokens)
    # The last three stay zero: aborts do so in vLLM, and the model knows neither errors nor repetitions.
    finished = {reason.value: count for reason, count in counters.finished.items()}
    reasons = finished | {"abort": 0, "error": 0, "repetition": 0}
    name, text = "vllm:request_success_total", "Count of successfully processed requests."
    yield from page.labelled(name, text, "counter", "finished_reason", reasons)


def _shared_histograms(page: _Page, counters: Counters) -> Iterator[str]:
    # The first is a histogram whose name ends as a counter's does; it is vLLM's.
    families = (
        ("iteration_tokens_total", "number of tokens per engine_step", counters.step_tokens),
        ("request_prompt_tokens", "prompt tokens per request", counters.request_prompt_tokens),
        ("request_generation_tokens", "generation tokens per request", counters.request_generation_tokens),
        ("request_params_max_tokens", "the max_tokens request parameter", counters.request_max_tokens),
        ("request_prefill_kv_computed_tokens", "new KV tokens computed in prefill", counters.computed_prompt_tokens),
        ("request_num_preemptions", "the number of times a request was preempted", counters.request_preemptions),
        ("time_to_first_token_seconds", "time to first token in seconds", counters.first_token),
        ("e2e_request_latency_seconds", "e2e request latency in seconds", counters.end_to_end),
        ("request_queue_time_seconds", "time spent in WAITING phase for request", counters.queue),
        ("request_inference_time_seconds", "time spent in RUNNING phase for request", counters.inference),
        ("request_prefill_time_seconds", "time spent in PREFILL phase for request", counters.prefill),
        ("request_decode_time_seconds", "time spent in DECODE phase for request", counters.decode),
    )
    for name, text, histogram in families:
        yield from page.histogram(f"vllm:{name}", f"Histogram of {text}.", histogram)


def _token_latency(page: _Page, counters: Counters, old: bool) -> Iterator[str]:
    if old:
        text = "Histogram of time per output token in seconds."
        yield from page.histogram("vllm:time_per_output_token_seconds", text, counters.between_tokens)
        return
    text = "Histogram of inter-token latency in seconds."
    yield from page.histogram("vllm:inter_token_latency_seconds", text, counters.between_tokens)
    text = "Histogram of time_per_output_token_seconds per request."
    yield from page.histogram("vllm:request_time_per_output_token_seconds", text, counters.per_output_token)
