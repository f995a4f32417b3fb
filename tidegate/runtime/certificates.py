"""The part that follows certificates: those that Envoy is sent, those to engines, and our own."""

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from prometheus_client import CollectorRegistry

from tidegate.certificates import Outgoing
from tidegate.config import Config
from tidegate.config_tls import ListenerTls, PoolTls, ServerTls
from tidegate.fleet.events import PoolsDeclared
from tidegate.pem import Authorities, Identity
from tidegate.runtime.certificate_files import CertificateFiles, Source
from tidegate.runtime.part import Part
from tidegate.telemetry.certificates import CertificateCollector
from xds import secrets
from xds.secrets import Material

LOOK_SECONDS: Final = 0.5
"""Pause between two looks at the files: what is renewed is in force after two of them."""


class Certificates(Part):
    """Follows the files that a configuration names."""

    def __init__(
        self, registry: CollectorRegistry, renewed: Callable[[], None], clock: Callable[[], float] = time.time
    ) -> None:
        """Call ``renewed`` when Envoy is to be sent something new; ``clock`` gives seconds since 1970."""
        self._renewed = renewed
        self._clock = clock
        self._files = CertificateFiles()
        self._sources: tuple[Source, ...] = ()
        self._outgoing: dict[PoolTls, Outgoing] = {}
        registry.register(CertificateCollector(lambda: (followed.standing() for followed in self._files)))

    def follow(self, config: Config, declared: PoolsDeclared) -> None:  # noqa: ARG002
        """Follow the files of ``config``."""
        self._follow(config)
        used = {pool.tls for pool in config.pools}
        self._outgoing = {tls: outgoing for tls, outgoing in self._outgoing.items() if tls in used}

    def material(self, config: Config) -> Material:
        """Return what ``config`` has Envoy sent."""
        self._follow(config)
        sent = {one.source.secret: one.value for one in self._files if one.source.secret}
        return Material(
            {name: value for name, value in sent.items() if isinstance(value, Identity)},
            {name: value for name, value in sent.items() if isinstance(value, Authorities)},
        )

    def to_engines(self, config: Config, declared: PoolsDeclared) -> Mapping[str, Outgoing]:
        """Return how to connect to the endpoints of ``declared`` that speak TLS, by their addresses."""
        secured = {pool.name: pool.tls for pool in config.pools if pool.tls is not None}
        return {
            endpoint.address: self._to(secured[pool.name])
            for pool in declared.pools
            if pool.name in secured
            for endpoint in pool.endpoints
        }

    async def run(self) -> None:
        """Look at the files again and again."""
        while True:
            contents = await asyncio.to_thread(self._files.contents)
            changed = self._files.look(contents, self._clock())
            if changed:
                for outgoing in self._outgoing.values():
                    outgoing.renew()
            if any(source.secret for source in changed):
                self._renewed()
            await asyncio.sleep(LOOK_SECONDS)

    def _follow(self, config: Config) -> None:
        sources = tuple(named(config))
        if sources != self._sources:
            self._sources = sources
            self._files.follow(sources, self._clock())

    def _to(self, settings: PoolTls) -> Outgoing:
        found = self._outgoing.get(settings)
        if found is None:
            by_name = settings.san
            found = Outgoing(settings.ca, settings.certificate, settings.key, settings.server_name, by_name)
            self._outgoing[settings] = found
        return found


def named(config: Config) -> Iterator[Source]:
    """Yield every certificate on this machine that ``config`` names."""
    yield from _of_listener("listener.tls", config.listener.tls)
    for group in config.envoys.groups:
        if group.listener is not None:
            yield from _of_listener(f"envoys.groups.{group.name}.listener.tls", group.listener.tls)
    for pool in config.pools:
        if pool.tls is not None:
            place = f"pools.{pool.name}.tls"
            yield Source(f"{place}.ca", (pool.tls.ca,), secrets.pool_ca(pool.name))
            if pool.tls.certificate is not None and pool.tls.key is not None:
                pair = (pool.tls.certificate, pool.tls.key)
                yield Source(f"{place}.certificate", pair, secrets.pool_certificate(pool.name))
    yield from _of_server("control.tls", config.control.tls)
    if config.agents is not None:
        yield from _of_server("agents.tls", config.agents.tls)
    if config.redis is not None:
        if config.redis.ca is not None:
            yield Source("redis.ca", (config.redis.ca,))
        if config.redis.certificate is not None and config.redis.key is not None:
            yield Source("redis.certificate", (config.redis.certificate, config.redis.key))


def _of_listener(place: str, settings: ListenerTls | None) -> Iterator[Source]:
    if settings is not None and settings.read_by == "tidegate":
        pair = (settings.certificate, settings.key)
        yield Source(f"{place}.certificate", pair, secrets.listener_certificate(settings))
        if settings.client_ca is not None:
            yield Source(f"{place}.client_ca", (settings.client_ca,), secrets.listener_client_ca(settings))


def _of_server(place: str, settings: ServerTls | None) -> Iterator[Source]:
    if settings is not None:
        yield Source(f"{place}.certificate", (settings.certificate, settings.key))
        yield Source(f"{place}.client_ca", (settings.client_ca,))
