"""What replicas share, as the configuration says."""

import os
import time
from typing import Final

from prometheus_client import CollectorRegistry

from tidegate import regular_file
from tidegate.config import Config
from tidegate.config_redis import Redis
from tidegate.runtime.kept_budgets import KeptBudgets
from tidegate.runtime.part import Part
from tidegate.runtime.tenants import Tenants
from tidegate.sharing import names
from tidegate.sharing.allowance import SharedAllowance
from tidegate.sharing.contracts import Link, Times
from tidegate.sharing.place import Place
from tidegate.telemetry.sharing import SharingFigures

CONNECT_SECONDS: Final = 0.5
"""How long a connection may take to be made, with TLS, name and password; no request waits for it."""


def made(config: Config, registry: CollectorRegistry) -> SharedAllowance | None:
    """Return what counts for all replicas, and counts itself in ``registry``; ``None`` where each counts alone."""
    settings = config.redis
    if settings is None:
        return None
    keys, place = names.keys(settings.prefix), place_of(settings)

    def connect() -> Link:
        # Here because only those who have Redis need to have its client.
        from tidegate.sharing import link  # noqa: PLC0415

        return link.Link(place, keys, CONNECT_SECONDS)

    figures = SharingFigures(registry)
    shared = SharedAllowance(
        connect,
        Times(settings.timeout_seconds, CONNECT_SECONDS, config.limits.lease_seconds),
        names.Names(_salt(settings)),
        figures,
        time.time,
        replicas=settings.replicas,
    )
    figures.watch(shared.state)
    return shared


class SharedLimits(Part):
    """Keeps them shared."""

    def __init__(self, shared: SharedAllowance) -> None:
        """Keep ``shared`` so."""
        self._shared = shared

    async def run(self) -> None:
        """Talk to Redis until cancelled."""
        await self._shared.run()


def keeping(tenants: Tenants, config: Config) -> Part:
    """Return what keeps what ``tenants`` use: in Redis, or else over a restart, where ``config`` says so."""
    return KeptBudgets(tenants.allowance, config) if tenants.shared is None else SharedLimits(tenants.shared)


def place_of(settings: Redis) -> Place:
    """Return where Redis is."""
    return Place(
        *settings.location,
        username=settings.username,
        password_file=settings.password_file,
        password=os.environ.get(settings.password_env) if settings.password_env else None,
        ca=settings.ca,
        certificate=settings.certificate,
        key=settings.key,
    )


def _salt(settings: Redis) -> str:
    if settings.salt_file is None:
        return settings.prefix
    return regular_file.read(settings.salt_file).decode().strip()
