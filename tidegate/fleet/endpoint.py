"""Endpoints and pools as an operator declares them."""

from dataclasses import dataclass

from tidegate.fleet.breaker import BreakerRules
from tidegate.fleet.gpu import KV_BYTES_PER_TOKEN
from tidegate.fleet.health import RULES, HealthRules
from tidegate.fleet.vram import Judged


@dataclass(frozen=True, slots=True)
class EndpointSpec:
    """One address that requests may be sent to.

    Attributes:
        address: ``ip:port``, IPv6 in brackets; the endpoint's identity everywhere.
        weight: relative capacity, 1 or more.
        role: what it does: ``both``, or only ``prefill`` or ``decode`` where these are taken apart.
        models: the names it serves, of those of its pool; empty when it serves them all.
        max_running: the most requests in its batch; ``None`` when that is not known.
        gpu: what it runs on, a name of ``gpu.PRIORS``; empty when nobody said.
        node: the GPU host that it runs on, by the name that its agent reports as; empty when nobody said.
        gpus: the UUIDs of the GPUs there that it runs on; empty for all of them.
        drain: it is to get nothing new.
    """

    address: str
    weight: int = 1
    role: str = "both"
    models: tuple[str, ...] = ()
    max_running: int | None = None
    gpu: str = ""
    node: str = ""
    gpus: tuple[str, ...] = ()
    drain: bool = False


@dataclass(frozen=True, slots=True)
class PoolSpec:
    """Endpoints that serve the same models.

    Attributes:
        name: unique among the pools; also the name of the Envoy cluster.
        engine: the metrics dialect of its endpoints; ``none`` when they report nothing.
        models: patterns of model names, ``*`` standing for any run of characters.
        endpoints: the members, without duplicates.
        adapters: patterns of the names of LoRA adapters, likewise, over the model that the engines hold.
        reckons: what the endpoints work on, and how fast, is reckoned; it costs a tenth of a request's time, and few
            policies read it.
        told: its engines say themselves what they cache, so nothing is guessed of it.
        vram: how the VRAM of its endpoints is judged.
        kv_bytes_per_token: bytes that the KV cache of one token takes.
        breaker: by what endpoints that fail their requests are left alone; ``None``: they are not.
        health: by which rules its endpoints are judged.
    """

    name: str
    engine: str
    models: tuple[str, ...]
    endpoints: tuple[EndpointSpec, ...]
    adapters: tuple[str, ...] = ()
    reckons: bool = True
    told: bool = False
    vram: Judged = "ignore"
    kv_bytes_per_token: int = KV_BYTES_PER_TOKEN
    breaker: BreakerRules | None = None
    health: HealthRules = RULES
