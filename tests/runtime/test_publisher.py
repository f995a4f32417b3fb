"""When a changed fleet is published."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from tidegate.config import Config, parse
from tidegate.discovery import static
from tidegate.fleet.events import LoadReported, ScrapeFailed, TimePassed
from tidegate.fleet.health import RULES
from tidegate.fleet.load import EngineReport
from tidegate.fleet.state import Fleet
from tidegate.runtime.publisher import Publisher
from xds.groups import Groups
from xds.server import DiscoveryServer

TEXT = b"""
pools:
  - name: one
    endpoints: [{address: "127.0.0.1:8001"}, {address: "127.0.0.1:8002"}, {address: "127.0.0.1:8003"}]
"""


class Recorder(DiscoveryServer):
    """Notes what is published."""

    def __init__(self) -> None:
        super().__init__(lambda _: None)
        self.published: list[Groups] = []

    def publish_groups(self, groups: Groups) -> None:
        self.published.append(groups)


class Scene:
    """A fleet, its publisher and a clock that the test turns."""

    def __init__(self) -> None:
        self.now = 100.0
        self.config: Config = parse(TEXT, "file")
        self.fleet = Fleet(45.0)
        self.fleet.apply(static.declared(self.config), self.now)
        self.recorder = Recorder()
        self.publisher = Publisher(self.recorder, lambda: self.fleet.views(self.now), lambda: self.now)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self.publisher.run(lambda: self.config))
        try:
            yield
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def published(self) -> int:
        self.publisher.changed()
        for _ in range(5):
            await asyncio.sleep(0)
        return len(self.recorder.published)


@pytest.fixture
def scene() -> Scene:
    return Scene()


async def test_a_change_that_changes_nothing_for_envoy_is_not_published(scene: Scene) -> None:
    scene.publisher.publish(scene.config)
    async with scene.running():
        scene.fleet.apply(LoadReported("127.0.0.1:8001", EngineReport(running=3)), scene.now)
        assert await scene.published() == 1


async def test_an_endpoint_that_cannot_be_reached_is_removed_at_once_and_comes_back_when_it_was_held(
    scene: Scene,
) -> None:
    scene.publisher.publish(scene.config)
    async with scene.running():
        for _ in range(3):
            scene.fleet.apply(ScrapeFailed("127.0.0.1:8001", unreachable=True, reason="refused"), scene.now)
        assert await scene.published() == 2
        scene.fleet.apply(LoadReported("127.0.0.1:8001", EngineReport()), scene.now)
        assert await scene.published() == 2
        scene.now += RULES.hold_seconds
        scene.fleet.apply(TimePassed(), scene.now)
        assert await scene.published() == 3


async def test_nobody_is_removed_when_most_seem_gone(scene: Scene) -> None:
    scene.publisher.publish(scene.config)
    async with scene.running():
        for endpoint in ("127.0.0.1:8001", "127.0.0.1:8002"):
            for _ in range(3):
                scene.fleet.apply(ScrapeFailed(endpoint, unreachable=True, reason="refused"), scene.now)
        assert await scene.published() == 1
