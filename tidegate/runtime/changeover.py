"""From one configuration to the next while requests run, without losing any."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import NamedTuple, Protocol

from tidegate.config import Config
from tidegate.config_routes import ways

TAKE_UP_SECONDS = 2.0
TAKE_UP_POLL_SECONDS = 0.02
"""How long a reload waits for Envoy to take up a new pool, a matter of milliseconds, and how often it looks."""

IN_TRANSIT_SECONDS = 0.2
"""How long a decision may be on its way to Envoy, and a configuration that Envoy acknowledged to its workers (measured:
two requests lost in eight changes without the latter)."""


class Deciding(Protocol):
    """Who decides."""

    async def prepare(self, config: Config) -> None:
        """Make ready for ``config``."""
        ...

    def configure(self, config: Config) -> None:
        """Decide by ``config``, which was prepared, from now on."""
        ...

    async def settled(self) -> None:
        """Wait until everybody does."""
        ...


class Changeover(NamedTuple):
    """What changes over.

    Attributes:
        deciding: who decides.
        declare: makes everything that a configuration names known, here and then to Envoy.
        publish: tells Envoy of it, and nobody else.
        synced: waits until what is newly declared was found.
        up_to_date: whether Envoy has what was published.
    """

    deciding: Deciding
    declare: Callable[[Config], None]
    publish: Callable[[Config], None]
    synced: Callable[[], Awaitable[None]]
    up_to_date: Callable[[], bool]

    async def make(self, before: Config, config: Config) -> None:
        """Take over ``config`` in the place of ``before``.

        A decision names a pool, and a request whose pool Envoy does not know is lost. So a new pool is decided for only
        when Envoy has it, and an old one taken away only when the last decision for it has got there. So it is with the
        paths that routes lead to.
        """
        await self.deciding.prepare(config)
        if bool(config.tenants) != bool(before.tenants):
            before = await self._begin_or_end_asking(before, config)
        names = {pool.name for pool in config.pools}
        if {pool.name for pool in before.pools} == names and ways(before.routes) == ways(config.routes):
            self.declare(config)
            self.deciding.configure(config)
            return
        gone = tuple(pool for pool in before.pools if pool.name not in names)
        # What is declared last counts for an endpoint that moves between pools. (A copy is not checked again.)
        both = {"pools": (*gone, *config.pools), "routes": (*config.routes, *before.routes)}
        self.declare(config.model_copy(update={**both, "envoys": config.envoys.widened(before.envoys)}))
        await self.synced()
        await self._taken_up()
        self.deciding.configure(config)
        await self.deciding.settled()
        # Until the last decision by the old one has reached Envoy.
        await asyncio.sleep(IN_TRANSIT_SECONDS)
        self.declare(config)

    async def _begin_or_end_asking(self, before: Config, config: Config) -> Config:
        """Begin to ask who comes once Envoy sends what says so, or end it while it still does; return what holds then.

        No request is turned away in between for what Envoy keeps to itself. Nor does an engine see a key that is ours.
        """
        if config.tenants:
            asking = {"tenants": config.tenants, "authentication": config.authentication}
            before = before.model_copy(update=asking)
            self.publish(before)
            await self._taken_up()
        else:
            nobody = {"tenants": (), "keys": (), "authentication": config.authentication}
            asking_nobody = before.model_copy(update=nobody)
            await self.deciding.prepare(asking_nobody)
            self.deciding.configure(asking_nobody)
            await self.deciding.settled()
            await self.deciding.prepare(config)
        return before

    async def _taken_up(self) -> None:
        """Wait until Envoy has what was published; one that does not say so is not waited for."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(TAKE_UP_SECONDS):
                while not self.up_to_date():  # noqa: ASYNC110  few and short waits; nobody else wants to know
                    await asyncio.sleep(TAKE_UP_POLL_SECONDS)
        await asyncio.sleep(IN_TRANSIT_SECONDS)
