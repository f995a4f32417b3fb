"""Which endpoints run on a node, and on which of its GPUs. Pure.

An endpoint that says its node runs there alone. Of the others, those run on a node whose IP address is its name. Where
agents are believed whatever they say (no certificates), those too that the agent asks for their health: it knows where
its engine listens. Nothing is ever added by what an agent says; it names endpoints that are declared, or none.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple
from urllib.parse import urlsplit

from tidegate import addresses
from tidegate.fleet.endpoint import EndpointSpec
from tidegate.health.reported import Report

Believed = Callable[[str], bool]
"""Whether an agent may say of an engine at this IP address that it is on its node."""


class Place(NamedTuple):
    """An endpoint on a node.

    Attributes:
        address: the endpoint's.
        gpus: the UUIDs of the GPUs that it runs on; empty when nobody said.
        alone: no other endpoint is known to run on the node.
    """

    address: str
    gpus: tuple[str, ...] = ()
    alone: bool = True


def nobody(_: str) -> bool:
    """Believe no agent about engines' addresses."""
    return False


class Places:
    """Where the endpoints of a fleet run."""

    def __init__(self, endpoints: Iterable[EndpointSpec] = (), believed: Believed = nobody) -> None:
        """Place ``endpoints``; ``believed`` says what engines' addresses agents are believed about."""
        self._believed = believed
        self._by_node: dict[str, list[EndpointSpec]] = {}
        self._by_host: dict[str, list[EndpointSpec]] = {}
        self._by_address: dict[str, EndpointSpec] = {}
        for spec in endpoints:
            if spec.node:
                self._by_node.setdefault(spec.node, []).append(spec)
            else:
                self._by_host.setdefault(addresses.split(spec.address)[0], []).append(spec)
                self._by_address[spec.address] = spec

    @property
    def named(self) -> frozenset[str]:
        """The nodes that endpoints say they run on."""
        return frozenset(self._by_node)

    def on(self, report: Report) -> tuple[Place, ...]:
        """Return the endpoints on the node that ``report`` is from."""
        specs = {spec.address: spec for spec in self._by_node.get(report.node, ())}
        if addresses.is_address(report.node):
            specs |= {spec.address: spec for spec in self._by_host.get(addresses.ip(report.node), ())}
        for engine in report.engines:
            place = listening(engine.url)
            if place in self._by_address and self._believed(addresses.split(place)[0]):
                specs[place] = self._by_address[place]
        return tuple(Place(spec.address, spec.gpus, len(specs) == 1) for spec in specs.values())


def listening(url: str) -> str:
    """Return the ``ip:port`` of ``url`` in its one spelling; empty for one that has none."""
    try:
        parts = urlsplit(url)
        port = parts.port or {"http": 80, "https": 443}[parts.scheme]
        return addresses.ip_and_port(addresses.joined(addresses.ip(parts.hostname or ""), port))
    except (ValueError, KeyError):
        return ""


def port_of(url: str) -> int | None:
    """Return the port of ``url``; ``None`` for one that has none."""
    try:
        parts = urlsplit(url)
        return parts.port or {"http": 80, "https": 443}.get(parts.scheme)
    except ValueError:
        return None
