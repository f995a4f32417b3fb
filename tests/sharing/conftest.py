"""A Redis for each test that asks for one."""

from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from tests.sharing.redis_server import RedisServer, redis_server
from tidegate.scheduling.sharing import gathering
from tidegate.sharing import courier


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have replicas say more often that they are there: the tests wait for that."""
    monkeypatch.setattr(courier, "BEAT_SECONDS", 0.2)
    monkeypatch.setattr(gathering, "TELL_SECONDS", 0.3)


@pytest.fixture
def empty(tmp_path: Path) -> Iterator[RedisServer]:
    """One that has just begun."""
    with redis_server(tmp_path) as running:
        yield running


@pytest.fixture
def server(empty: RedisServer) -> RedisServer:
    """One that replicas have used for long, so that nobody waits for what others may have to tell."""
    empty.do("HSET", "{test}:meta", "epoch", "long ago", "began", 0)
    return empty


@pytest.fixture
async def stack() -> AsyncIterator[AsyncExitStack]:
    """What runs until the test is over."""
    async with AsyncExitStack() as running:
        yield running
