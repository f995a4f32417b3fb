"""The source that a pool's configuration names."""

from random import Random

from tidegate.config_discovery import Discovery
from tidegate.discovery.consul import Consul
from tidegate.discovery.contract import Source
from tidegate.discovery.dns import Dns
from tidegate.discovery.file import File
from tidegate.discovery.kubernetes import Kubernetes


def source(settings: Discovery, rng: Random) -> Source:
    """Return the source that ``settings`` describe; ``rng`` spreads its questions over time."""
    if settings.file is not None:
        return File(settings.file)
    if settings.dns is not None:
        return Dns(settings.dns, rng)
    if settings.consul is not None:
        return Consul(settings.consul, rng)
    if settings.kubernetes is not None:
        return Kubernetes(settings.kubernetes, rng)
    raise ValueError("no source")
