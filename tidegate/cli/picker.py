"""``tidegate picker``: an endpoint picker, for a gateway that owns Envoy's configuration."""

import asyncio
import signal
from pathlib import Path

import click
import uvloop

from tidegate.cli._options import LogFormat, config_option, load_or_exit, log_format_option
from tidegate.runtime import descriptors
from tidegate.runtime.picker import PickerPlane
from tidegate.runtime.services import BindError
from tidegate.telemetry import log
from tidegate.tokens.vocabulary import VocabularyError


@click.command("picker", short_help="Pick endpoints for a gateway of the Gateway API.")
@config_option
@log_format_option
def command(file: Path, log_format: LogFormat) -> None:
    """Run an endpoint picker, for a gateway that speaks the Gateway API's Endpoint Picker Protocol.

    On SIGTERM it takes nothing new and lets running answers end. SIGHUP reloads the configuration.
    """
    log.setup(log_format)
    descriptors.raise_limit()
    config = load_or_exit(file)
    missing: tuple[Exception, ...] = ()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        try:
            runner.run(_serve(PickerPlane(config, file)))
        except* (BindError, VocabularyError) as group:
            missing = group.exceptions
    for line in "\n".join(map(str, missing)).splitlines():
        click.echo(f"tidegate: {line}", err=True)
    if missing:
        raise SystemExit(1)


async def _serve(plane: PickerPlane) -> None:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    loop.add_signal_handler(signal.SIGHUP, plane.reload)
    await plane.run(stop)
