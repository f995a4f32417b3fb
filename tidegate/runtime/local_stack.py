"""Everything on one machine: engines where wanted, the control plane, and a real Envoy in front."""

import asyncio
import logging
import signal
import sys
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import aiohttp

from tidegate.config import Config
from tidegate.runtime import ports
from tidegate.runtime.processes import Child, Children, Program
from tidegate.telemetry.log import event

logger = logging.getLogger("tidegate.up")

READY_SECONDS = 60.0
"""How long each part may take to become ready before the start is given up."""

POLL_SECONDS = 0.05

CONTROL_PLANE = "control plane"

ENVOY_LOG: Mapping[str, str] = {
    "text": 'ts=%Y-%m-%dT%T.%e%z level=%l logger=envoy.%n msg="%j"',
    "json": '{"ts": "%Y-%m-%dT%T.%e%z", "level": "%l", "logger": "envoy.%n", "msg": "%j"}',
}
"""Envoy's log lines in the form of ours, by the name of that form."""


class StartError(Exception):
    """The stack did not come up; one line for each reason."""


@dataclass(frozen=True, slots=True)
class Stack:
    """What to run.

    Attributes:
        config: the configuration in ``config_file``.
        config_file: its path, which the control plane watches.
        bootstrap: the Envoy bootstrap, as YAML. No file holds it: a file could be gone when Envoy is started again.
        envoy: the Envoy executable.
        engine_arguments: arguments of ``tidegate engine``; empty to start no engines.
        engine_ports: the ports that it will bind.
        log_format: ``text`` or ``json``.
    """

    config: Config
    config_file: Path
    bootstrap: str
    envoy: Path
    engine_arguments: Sequence[str]
    engine_ports: Sequence[int]
    log_format: str

    def claims(self) -> list[ports.Claim]:
        """Return every port that the stack will bind."""
        config = self.config
        key, listener = config.listener_here
        return [
            ports.Claim(f"clients ({key}.port)", listener.address, listener.port),
            *ports.of_control_plane(config),
            ports.Claim("Envoy's admin page (envoy.admin_port)", config.envoy.admin_address, config.envoy.admin_port),
            *(ports.Claim("a simulated engine", "127.0.0.1", port) for port in self.engine_ports),
        ]

    async def run(self, stop: asyncio.Event, reload: asyncio.Event, ready: Callable[[], Awaitable[None]]) -> None:
        """Start all parts, call ``ready``, and keep them running until ``stop`` is set; then stop every one.

        Whenever ``reload`` is set, the control plane reads its configuration again.

        Raises:
            StartError: a port is taken, or a part did not become ready.
        """
        if taken := ports.conflicts(self.claims()):
            raise StartError("\n".join(taken))
        children = Children()
        try:
            started = await self._start(children, stop)
            if not stop.is_set():
                await ready()
                await _keep(children, started, stop, reload)
            event(logger, "stopping")
        finally:
            await children.stop()
        event(logger, "stopped")

    async def _start(self, children: Children, stop: asyncio.Event) -> list[Child]:
        started: list[Child] = []
        for program, is_ready in self._parts():
            if stop.is_set():
                break
            try:
                child = await children.start(program)
            except OSError as error:
                raise StartError(f"{program.name} cannot be run: {program.command[0]}: {error.strerror}") from None
            started.append(child)
            await _unless(stop, _until_ready(child, is_ready))
        return started

    def _parts(self) -> list[tuple[Program, Callable[[], Awaitable[bool]]]]:
        """Return the programs in the order of their start, each with the test that it is ready."""
        python = [sys.executable, "-m", "tidegate"]
        config = self.config
        log_format = ("--log-format", self.log_format)
        engine = Program("engine", [*python, "engine", *self.engine_arguments, *log_format])
        serve = Program(CONTROL_PLANE, [*python, "serve", "--config", str(self.config_file), *log_format])
        envoy = Program(
            "envoy",
            [
                str(self.envoy),
                "--config-yaml",
                self.bootstrap,
                "--concurrency",
                str(config.envoy.concurrency),
                "--disable-hot-restart",
                "--log-format",
                ENVOY_LOG[self.log_format],
                "--log-level",
                "warning",
                # misc warns at every start that the usage filter's API is work in progress, and ext_proc once for every
                # request while nobody decides, which the control plane's end has said already
                "--component-log-level",
                "misc:error,ext_proc:error",
            ],
        )
        parts: list[tuple[Program, Callable[[], Awaitable[bool]]]] = []
        if self.engine_arguments:
            parts.append((engine, lambda: _answers(f"http://127.0.0.1:{self.engine_ports[-1]}/health")))
        parts.append((serve, lambda: _answers(f"{url(config.admin.address, config.admin.port)}/readyz")))
        parts.append((envoy, lambda: _answers(f"{url(config.envoy.admin_address, config.envoy.admin_port)}/ready")))
        return parts


def url(address: str, port: int) -> str:
    """Return the URL under which a socket bound to ``address`` is reached from this machine."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(address, address)  # noqa: S104  compared, not bound
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


async def _answers(page: str) -> bool:
    """Return whether ``page`` answers 200."""
    timeout = aiohttp.ClientTimeout(total=2.0)
    try:
        async with aiohttp.ClientSession(timeout=timeout) as session, session.get(page) as answer:
            return answer.status == 200
    except (aiohttp.ClientError, TimeoutError):
        return False


async def _unless(stop: asyncio.Event, work: Coroutine[object, object, None]) -> None:
    """Do ``work``, but give it up as soon as ``stop`` is set."""
    tasks = asyncio.ensure_future(work), asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if tasks[0].done():
            await tasks[0]
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


async def _until_ready(child: Child, is_ready: Callable[[], Awaitable[bool]]) -> None:
    name = child.program.name
    ended = asyncio.ensure_future(child.wait())
    try:
        async with asyncio.timeout(READY_SECONDS):
            while not await is_ready():
                if ended.done():
                    raise StartError(f"{name} ended with status {ended.result()} before it was ready")
                await asyncio.sleep(POLL_SECONDS)
    except TimeoutError:
        raise StartError(f"{name} was not ready within {READY_SECONDS:.0f} seconds") from None
    finally:
        ended.cancel()
    event(logger, "ready", program=name)


async def _keep(children: Children, started: Sequence[Child], stop: asyncio.Event, reload: asyncio.Event) -> None:
    """Restart what dies, and pass ``reload`` on, until ``stop`` is set."""
    async with asyncio.TaskGroup() as tasks:
        keepers = [tasks.create_task(children.keep(child)) for child in started]
        keepers.append(tasks.create_task(_pass_on(reload, started)))
        await stop.wait()
        for keeper in keepers:
            keeper.cancel()


async def _pass_on(reload: asyncio.Event, started: Sequence[Child]) -> None:
    while True:
        await reload.wait()
        reload.clear()
        for child in started:
            if child.program.name == CONTROL_PLANE:
                child.signal(signal.SIGHUP)
