"""The access log of a real Envoy over the h2 transport: one entry per request, whatever becomes of the server."""

import asyncio
import functools
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import aiohttp
import pytest

from extproc import h2_transport
from extproc.h2_transport import serving
from tests.e2e.gateway import CHAT, Control, Engine, config_for, eventually, view
from tests.envoy_process import EnvoyProcess, running_envoy
from tests.extproc.desks import FakeDesk
from tests.extproc.h2_client import Counts
from tests.ports import free_port
from tidegate.config import Config
from tidegate.telemetry.access_log import PATH, Intake
from xds import bootstrap, build

GONE_SECONDS = 0.5


class Log:
    """What arrived."""

    def __init__(self) -> None:
        self.ended: list[int] = []
        self.running = 0
        self.malformed = 0
        self.intake = Intake(lambda record: self.ended.append(record.status), self._progress, self._count)

    def _progress(self, _: object) -> None:
        self.running += 1

    def has_more_than(self, count: int) -> bool:
        return len(self.ended) > count

    def _count(self) -> None:
        self.malformed += 1


class Clients:
    """Four clients that ask for a model that is not served: each request is decided, and ends at once."""

    def __init__(self, config: Config) -> None:
        self.url = f"http://127.0.0.1:{config.listener.port}{CHAT}"
        self.statuses: list[int] = []
        self.stopped = asyncio.Event()

    def answered(self, count: int) -> bool:
        return len(self.statuses) >= count

    async def run(self) -> None:
        async with aiohttp.ClientSession() as session, asyncio.TaskGroup() as tasks:
            for _ in range(4):
                tasks.create_task(self._ask(session))

    async def _ask(self, session: aiohttp.ClientSession) -> None:
        body = {"model": "missing", "messages": [{"role": "user", "content": "hello"}]}
        while not self.stopped.is_set():
            async with session.post(self.url, json=body) as answer:
                await answer.read()
                self.statuses.append(answer.status)


@asynccontextmanager
async def decisions(config: Config, log: Log) -> AsyncIterator[None]:
    port, inflows = config.control.ext_proc_port, {PATH: log.intake.reader}
    async with serving("127.0.0.1", port, FakeDesk(), Counts(), inflows, max_body_bytes=100_000, grace=1.0):
        yield


@pytest.fixture
async def envoy() -> AsyncIterator[tuple[Config, EnvoyProcess]]:
    engines = (Engine(free_port()), Engine(free_port()))
    config = config_for(engines)
    over_h2 = config.control.model_copy(update={"ext_proc_transport": "h2"})
    # However long Envoy takes here to find it again.
    patient = config.limits.model_copy(update={"absence_seconds": 20.0})
    config = config.model_copy(update={"control": over_h2, "limits": patient})
    control = Control(config.control.xds_port)
    async with AsyncExitStack() as stack:
        await control.start(build.snapshot(config, [view(pool.name, engines[0].address) for pool in config.pools]))
        stack.push_async_callback(control.stop)
        text = bootstrap.render(config, bootstrap.template())
        yield config, await stack.enter_async_context(running_envoy(text, config.envoy.admin_port))
    assert not control.entries


async def test_every_request_is_logged_once_though_the_server_is_stopped_and_started(
    envoy: tuple[Config, EnvoyProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    # However late a busy machine lets Envoy send what it has gathered.
    monkeypatch.setattr(h2_transport, "LAST_MESSAGES_SECONDS", 1.5)
    config, _ = envoy
    log, clients = Log(), Clients(config)
    asking: asyncio.Task[None] | None = None
    for _ in range(3):
        async with decisions(config, log):
            asking = asking or asyncio.create_task(clients.run())
            logged = len(log.ended)
            await eventually(functools.partial(clients.answered, len(clients.statuses) + 40))
            # Envoy has opened its stream: to one that stops before that, it sends nothing.
            await eventually(functools.partial(log.has_more_than, logged))
        await asyncio.sleep(GONE_SECONDS)
    async with decisions(config, log):
        clients.stopped.set()
        assert asking is not None
        await asyncio.wait_for(asking, 10)
        await eventually(lambda: len(log.ended) >= len(clients.statuses), 5)
    assert set(clients.statuses) == {404}
    assert (log.ended, log.running, log.malformed) == (clients.statuses, 0, 0)
