"""``tidegate serve``: the control plane alone, for an Envoy that runs elsewhere."""

import asyncio
import signal
from pathlib import Path

import click
import uvloop

from tidegate.cli._options import LogFormat, config_option, load_or_exit, log_format_option
from tidegate.runtime import descriptors
from tidegate.runtime.control_plane import ControlPlane
from tidegate.runtime.services import BindError
from tidegate.runtime.workers.team import WorkerError
from tidegate.telemetry import log
from tidegate.tokens.vocabulary import VocabularyError


@click.command("serve", short_help="Run the control plane alone.")
@config_option
@log_format_option
def command(file: Path, log_format: LogFormat) -> None:
    """Run the control plane: decisions, discovery, access-log intake, metrics. SIGHUP reloads the configuration."""
    log.setup(log_format)
    descriptors.raise_limit()
    config = load_or_exit(file)
    missing: tuple[Exception, ...] = ()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        try:
            runner.run(_serve(ControlPlane(config, file, log_format)))
        except* (BindError, VocabularyError, WorkerError) as group:
            missing = group.exceptions
    for line in "\n".join(map(str, missing)).splitlines():
        click.echo(f"tidegate: {line}", err=True)
    if missing:
        raise SystemExit(1)


async def _serve(plane: ControlPlane) -> None:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    loop.add_signal_handler(signal.SIGHUP, plane.reload)
    await plane.run(stop)
