"""``tidegate up``: everything on this machine, Envoy included."""

import asyncio
import os
import signal
import tempfile
from pathlib import Path

import click

from tidegate.cli import _welcome
from tidegate.cli._options import LogFormat, load_or_exit, log_format_option
from tidegate.cli.bootstrap import write_secrets
from tidegate.config import Config
from tidegate.config_values import FOLLOWED
from tidegate.runtime import demo, descriptors
from tidegate.runtime.envoy_binary import EnvoyMissingError, locate
from tidegate.runtime.local_stack import Stack, StartError
from tidegate.telemetry import log
from xds import bootstrap


@click.command("up", short_help="Run the control plane and a real Envoy here.")
@click.option(
    "--config",
    "file",
    type=click.Path(path_type=Path),
    help="Your fleet's configuration file (YAML). Without it, four simulated engines are started and served.",
)
@log_format_option
def command(file: Path | None, log_format: LogFormat) -> None:
    """Run the control plane and a real Envoy, in the foreground; Ctrl-C stops everything.

    SIGHUP reloads the configuration, unless it comes because the terminal was closed.
    """
    log.setup(log_format)
    descriptors.raise_limit()
    if file is not None:
        _run(file, demo_engines=False, log_format=log_format)
        return
    with tempfile.TemporaryDirectory(prefix="tidegate-") as folder:
        demo_file = Path(folder, "tidegate.yaml")
        demo_file.write_text(demo.config_text())
        _run(demo_file, demo_engines=True, log_format=log_format)


def _run(file: Path, *, demo_engines: bool, log_format: LogFormat) -> None:
    config = load_or_exit(file, FOLLOWED)
    files = bootstrap.secret_files(config)
    if not files:
        _run_stack(config, file, None, demo_engines=demo_engines, log_format=log_format)
        return
    with tempfile.TemporaryDirectory(prefix="tidegate-envoy-") as secrets:
        write_secrets(Path(secrets), files)
        _run_stack(config, file, secrets, demo_engines=demo_engines, log_format=log_format)


def _run_stack(config: Config, file: Path, secrets: str | None, *, demo_engines: bool, log_format: LogFormat) -> None:
    try:
        node = config.envoys.node(config.envoy.group)
    except ValueError as error:
        click.echo(f"tidegate: {error} (envoy.group)", err=True)
        raise SystemExit(2) from None
    try:
        stack = Stack(
            config=config,
            config_file=file,
            bootstrap=bootstrap.render(config, bootstrap.template(), node, secrets),
            envoy=locate(),
            engine_arguments=demo.engine_arguments() if demo_engines else (),
            engine_ports=[engine.port for engine in demo.ENGINES] if demo_engines else (),
            log_format=log_format,
        )
        asyncio.run(_up(stack, simulated=demo_engines))
    except (StartError, EnvoyMissingError) as error:
        for line in str(error).splitlines():
            click.echo(f"tidegate: {line}", err=True)
        raise SystemExit(1) from None


async def _up(stack: Stack, *, simulated: bool) -> None:
    loop = asyncio.get_running_loop()
    stop, reload = asyncio.Event(), asyncio.Event()
    attached = _has_terminal()

    def hung_up() -> None:
        """Tell the terminal that was closed, which ends us, from somebody who wants the file read again."""
        (stop if attached and not _has_terminal() else reload).set()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    loop.add_signal_handler(signal.SIGHUP, hung_up)

    async def ready() -> None:
        model = await _welcome.model(stack.config)
        click.echo(_welcome.text(stack.config, stack.config_file, model, simulated=simulated))

    await stack.run(stop, reload, ready)


def _has_terminal() -> bool:
    """Return whether there is a terminal that controls this process, and that is still there."""
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY))
    except OSError:
        return False
    return True
