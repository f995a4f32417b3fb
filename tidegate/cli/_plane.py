"""Running what serves until a signal comes, and saying what it misses: the same for ``serve`` and ``picker``."""

import asyncio
import signal
from typing import Protocol

import click
import uvloop

from tidegate.runtime.services import BindError
from tidegate.runtime.workers.team import WorkerError
from tidegate.tokens.vocabulary import VocabularyError


class Plane(Protocol):
    """What serves."""

    def reload(self) -> None:
        """Read the configuration file again."""
        ...

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until ``stop`` is set."""
        ...


def run_or_exit(plane: Plane) -> None:
    """Run ``plane`` until SIGINT or SIGTERM; SIGHUP reloads. Where it misses something, say what and exit with 1."""
    missing: tuple[Exception, ...] = ()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        try:
            runner.run(_serve(plane))
        except* (BindError, VocabularyError, WorkerError) as group:
            missing = group.exceptions
    for line in "\n".join(map(str, missing)).splitlines():
        click.echo(f"tidegate: {line}", err=True)
    if missing:
        raise SystemExit(1)


async def _serve(plane: Plane) -> None:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    loop.add_signal_handler(signal.SIGHUP, plane.reload)
    await plane.run(stop)
