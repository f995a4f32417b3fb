"""What an engine counts about itself: the meanings behind vLLM's metrics, without their names."""

import enum
from bisect import bisect_left
from dataclasses import dataclass, field


class FinishReason(enum.Enum):
    """Why a request ended; the values are vLLM's."""

    STOP = "stop"
    """The model ended its answer."""
    LENGTH = "length"
    """The answer reached the limit that the request set."""


class Histogram:
    """Counts of observations by upper bound, and their sum."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        """``bounds``: inclusive upper bounds, ascending; one more bucket takes what lies above the last."""
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float, times: int = 1) -> None:
        """Count ``value``, ``times`` times."""
        self.counts[bisect_left(self.bounds, value)] += times
        self.sum += value * times

    @property
    def count(self) -> int:
        """Observations so far."""
        return sum(self.counts)


# vLLM 0.32's own bounds.
_FIRST_TOKEN = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0),
    *(20.0, 40.0, 80.0, 160.0, 640.0, 2560.0),
)
_PER_TOKEN = (
    *(0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0),
    *(20.0, 40.0, 80.0),
)
_REQUEST = (
    *(0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0),
    *(120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0),
)
_STEP_TOKENS = (1.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0, 8192.0, 16384.0)
_PREEMPTIONS = (1.0, 2.0, 3.0, 4.0, 5.0, 10.0, 20.0)


def _one_two_five(limit: int) -> tuple[float, ...]:
    """Return 1, 2, 5, 10, 20, 50 ... up to ``limit``: vLLM's bounds for lengths, which depend on max_model_len."""
    series = (float(digit * 10**power) for power in range(9) for digit in (1, 2, 5))
    return tuple(bound for bound in series if bound <= limit)


class Counters:
    """Everything an engine has counted since its start; tokens and seconds throughout."""

    def __init__(self, max_model_len: int) -> None:
        """``max_model_len``: longest prompt and answer together, in tokens; it sets the bounds for lengths."""
        lengths = _one_two_five(max_model_len)
        self.prompt_tokens = 0
        self.cached_prompt_tokens = 0
        self.generation_tokens = 0
        self.prefix_queries = 0
        self.prefix_hits = 0
        self.preemptions = 0
        self.rejections = 0
        self.finished = dict.fromkeys(FinishReason, 0)
        self.first_token = Histogram(_FIRST_TOKEN)
        self.between_tokens = Histogram(_PER_TOKEN)
        self.per_output_token = Histogram(_PER_TOKEN)
        self.end_to_end = Histogram(_REQUEST)
        self.queue = Histogram(_REQUEST)
        self.inference = Histogram(_REQUEST)
        self.prefill = Histogram(_REQUEST)
        self.decode = Histogram(_REQUEST)
        self.step_tokens = Histogram(_STEP_TOKENS)
        self.request_prompt_tokens = Histogram(lengths)
        self.request_generation_tokens = Histogram(lengths)
        self.request_max_tokens = Histogram(lengths)
        self.computed_prompt_tokens = Histogram(lengths)
        self.request_preemptions = Histogram(_PREEMPTIONS)


@dataclass(frozen=True, slots=True)
class Gauges:
    """An engine's state at one moment.

    Attributes:
        running: requests in the batch.
        waiting: requests accepted and not in the batch.
        kv_usage: share of the KV cache that they hold, 0 to 1.
    """

    running: int = 0
    waiting: int = 0
    kv_usage: float = 0.0


@dataclass(slots=True)
class Milestones:
    """When one request reached what, in seconds on the engine's clock; ``None`` until it does."""

    arrived: float
    scheduled: float | None = None
    first_token: float | None = None
    last_token: float | None = field(default=None)

    def token(self, now: float, counters: Counters) -> None:
        """Record a token at ``now``."""
        if self.last_token is None:
            self.first_token = now
            counters.first_token.observe(now - self.arrived)
        else:
            counters.between_tokens.observe(now - self.last_token)
        self.last_token = now

    def end(self, now: float, output_tokens: int, counters: Counters) -> None:
        """Record the end of a request that was scheduled before and got ``output_tokens`` tokens."""
        scheduled = self.arrived if self.scheduled is None else self.scheduled
        first = now if self.first_token is None else self.first_token
        counters.end_to_end.observe(now - self.arrived)
        counters.queue.observe(scheduled - self.arrived)
        counters.inference.observe(now - scheduled)
        counters.prefill.observe(first - scheduled)
        counters.decode.observe(now - first)
        counters.per_output_token.observe((now - first) / (output_tokens - 1) if output_tokens > 1 else 0.0)
