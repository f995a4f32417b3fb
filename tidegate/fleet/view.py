"""What readers see of the fleet: immutable values."""

from typing import NamedTuple

from tidegate.fleet.gpu import Pace, prior
from tidegate.fleet.health import Reachability

_PACE = prior("")


class EndpointView(NamedTuple):
    """One endpoint at one moment.

    Attributes:
        address: ``ip:port``.
        weight: relative capacity, 1 or more.
        reachability: whether it can be reached.
        ejected: Envoy no longer knows it.
        inflight_requests: requests of ours there.
        inflight_tokens: tokens that those may come to hold.
        requests: requests there, ours and those of others that the engine reported; where it is silent, as many of
            others as the reporting members of its pool bear on average, for its weight.
        tokens: tokens there, likewise.
        running: requests in the engine's batch, as it last said; ``None`` is unknown.
        waiting: requests waiting in the engine, likewise.
        kv_usage: share of the KV cache in use, 0 to 1, likewise.
        report_age: seconds since the last report; ``None`` when there never was one.
        pace: how fast it is and what it holds, as learned.
        context: tokens of context that the requests there have between them, ours and those of others; an estimate of
            this moment, where ``tokens`` is what they may come to hold.
        backlog: prompt tokens that we sent there and that are not prefilled yet, as far as can be reckoned.
        busy: the share of its time, 0 to 1, that prefill took of late.
        failing: the share of requests, 0 to 1, that failed there of late.
        cached_tokens: tokens of the prompt at hand that it probably has in its cache.
    """

    address: str
    weight: int
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
    pace: Pace = _PACE
    context: float = 0.0
    backlog: float = 0.0
    busy: float = 0.0
    failing: float = 0.0
    cached_tokens: int = 0


class PoolView(NamedTuple):
    """One pool at one moment."""

    name: str
    engine: str
    models: tuple[str, ...]
    endpoints: tuple[EndpointView, ...]
