"""What readers see of the fleet: immutable values."""

from typing import NamedTuple

from tidegate.fleet.breaker import Circuit
from tidegate.fleet.gpu import Pace, prior
from tidegate.fleet.health import HealthStatus, Reachability

_PACE = prior("")


class Adapters(NamedTuple):
    """LoRA adapters at one endpoint, as its engine last named them.

    Attributes:
        running: those of the requests in its batch.
        waiting: those that requests wait for.
        most: how many fit beside one another; ``None`` is unknown.
    """

    running: frozenset[str]
    waiting: frozenset[str]
    most: float | None


class EndpointView(NamedTuple):
    """One endpoint at one moment.

    Attributes:
        address: ``ip:port``.
        weight: relative capacity as declared, 1 or more, times ``share``.
        reachability: whether it can be reached.
        ejected: it gets nothing new, and Envoy no longer knows it; that is so while it drains as well.
        inflight_requests: requests of ours there.
        inflight_tokens: tokens that those may come to hold.
        requests: requests there, ours and those of others that the engine reported; where it is silent, as many of
            others as the reporting members of its pool bear on average, for its weight.
        tokens: tokens there, likewise.
        running: requests in the engine's batch, as it last said; ``None`` is unknown.
        waiting: requests waiting in the engine, likewise.
        kv_usage: share of the KV cache in use, 0 to 1, likewise.
        report_age: seconds since the last report; ``None`` when there never was one.
        kv_capacity_tokens: size of the engine's KV cache in tokens, likewise.
        role: ``both``, ``prefill`` or ``decode``.
        models: the names it serves, of those of its pool; empty when it serves them all.
        max_running: the most requests in its batch; ``None`` is unknown.
        adapters: LoRA adapters there; ``None`` is unknown.
        pace: how fast it is and what it holds, as learned; as if it were slower where ``share`` is less than 1.
        context: tokens of context that the requests there have between them, ours and those of others; an estimate of
            this moment, where ``tokens`` is what they may come to hold.
        backlog: prompt tokens that we sent there and that are not prefilled yet, as far as can be reckoned.
        busy: the share of its time, 0 to 1, that prefill took of late.
        failing: the share of requests, 0 to 1, that failed there of late.
        vram_room_tokens: tokens of context for which there is room in the VRAM; ``None`` where that is no reason.
        circuit: what its breaker says: whether requests may go there.
        health: how it is.
        share: of what it would get if it were healthy, 0 to 1.
        cached_tokens: tokens of the prompt at hand that it probably has in its KV cache; the last field, because it is
            the only one that differs from request to request.
    """

    address: str
    weight: float
    reachability: Reachability
    ejected: bool
    inflight_requests: int
    inflight_tokens: int
    requests: float
    tokens: float
    running: float | None
    waiting: float | None
    kv_usage: float | None
    report_age: float | None
    kv_capacity_tokens: float | None = None
    role: str = "both"
    models: tuple[str, ...] = ()
    max_running: int | None = None
    adapters: Adapters | None = None
    pace: Pace = _PACE
    context: float = 0.0
    backlog: float = 0.0
    busy: float = 0.0
    failing: float = 0.0
    vram_room_tokens: float | None = None
    circuit: Circuit = Circuit.CLOSED
    health: HealthStatus = HealthStatus.HEALTHY
    share: float = 1.0
    cached_tokens: int = 0

    @property
    def kv_free_tokens(self) -> float | None:
        """Tokens of KV cache that are free, by what the engine said and by what was sent there; ``None`` is unknown.

        The larger of the two counts: the engine does not know yet what was sent since, nor what its requests will grow
        to, and we do not know what others put there.
        """
        if self.kv_capacity_tokens is None:
            return None
        used = self.tokens if self.kv_usage is None else max(self.tokens, self.kv_usage * self.kv_capacity_tokens)
        return self.kv_capacity_tokens - used


class PoolView(NamedTuple):
    """One pool at one moment."""

    name: str
    engine: str
    models: tuple[str, ...]
    endpoints: tuple[EndpointView, ...]
