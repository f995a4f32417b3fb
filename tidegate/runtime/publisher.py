"""From a changed fleet to a published snapshot, no more often than Envoy can bear."""

import asyncio
import logging
from collections.abc import Callable

from tidegate.config import Config
from tidegate.fleet.view import PoolView
from tidegate.telemetry.log import event
from xds import build, pacing
from xds.secrets import NO_MATERIAL, Material
from xds.server import DiscoveryServer

logger = logging.getLogger("tidegate.xds")


class Publisher:
    """Publishes the fleet's table whenever it is due."""

    def __init__(
        self,
        discovery: DiscoveryServer,
        views: Callable[[], tuple[PoolView, ...]],
        clock: Callable[[], float],
        material: Callable[[Config], Material] = lambda _: NO_MATERIAL,
    ) -> None:
        """Publish to ``discovery`` what ``views`` and ``material`` return; ``clock`` gives seconds, monotonic."""
        self._discovery = discovery
        self._material = material
        self._views = views
        self._clock = clock
        self._changed = asyncio.Event()
        self._published: pacing.Published | None = None

    def changed(self) -> None:
        """Say that the fleet may look different now."""
        self._changed.set()

    def renewed(self) -> None:
        """Say that certificates are others now, which is due at once."""
        self._published = None
        self._changed.set()

    def publish(self, config: Config) -> None:
        """Publish at once."""
        pools = self._views()
        try:
            self._discovery.publish_groups(build.groups(config, pools, self._material(config)))
        except ValueError as error:
            event(logger, "inconsistent snapshot, the last good one goes on", level=logging.ERROR, reason=str(error))
            return
        self._published = pacing.Published(pacing.table(pools), self._clock())

    async def run(self, config: Callable[[], Config]) -> None:
        """Publish what is due, when it is due, until cancelled."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            due = pacing.due(self._published, pacing.table(self._views()), self._clock())
            if due is None:
                continue
            # What changes while we wait goes out with it, or, when it is more urgent, before it.
            delay = due - self._clock()
            if delay > 0:
                try:
                    await asyncio.wait_for(self._changed.wait(), delay)
                    continue
                except TimeoutError:
                    pass
            self.publish(config())
