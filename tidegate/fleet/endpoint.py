"""Endpoints and pools as an operator declares them."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class EndpointSpec:
    """One address that requests may be sent to.

    Attributes:
        address: ``ip:port``, IPv6 in brackets; the endpoint's identity everywhere.
        weight: relative capacity, 1 or more.
        gpu: what it runs on, a name of ``gpu.PRIORS``; empty when nobody said.
    """

    address: str
    weight: int = 1
    gpu: str = ""


@dataclass(frozen=True, slots=True)
class PoolSpec:
    """Endpoints that serve the same models.

    Attributes:
        name: unique among the pools; also the name of the Envoy cluster.
        engine: the metrics dialect of its endpoints; ``none`` when they report nothing.
        models: patterns of model names, ``*`` standing for any run of characters.
        endpoints: the members, without duplicates.
    """

    name: str
    engine: str
    models: tuple[str, ...]
    endpoints: tuple[EndpointSpec, ...]
