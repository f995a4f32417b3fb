"""``tidegate picker``: an endpoint picker, for a gateway that owns Envoy's configuration."""

from pathlib import Path

import click

from tidegate.cli._options import LogFormat, config_option, load_or_exit, log_format_option
from tidegate.cli._plane import run_or_exit
from tidegate.config_values import FOLLOWED
from tidegate.runtime import descriptors
from tidegate.runtime.picker import PickerPlane
from tidegate.telemetry import log


@click.command("picker", short_help="Pick endpoints for a gateway of the Gateway API.")
@config_option
@log_format_option
def command(file: Path, log_format: LogFormat) -> None:
    """Run an endpoint picker, for a gateway that speaks the Gateway API's Endpoint Picker Protocol.

    On SIGTERM it takes nothing new and lets running answers end. SIGHUP reloads the configuration.
    """
    log.setup(log_format)
    descriptors.raise_limit()
    config = load_or_exit(file, FOLLOWED)
    if config.tenants:
        # Nobody would ask for their keys, and it would look as if somebody did.
        click.echo(f"{file}: tenants: expected none for a picker: who may ask is for the gateway to say", err=True)
        raise SystemExit(2)
    run_or_exit(PickerPlane(config, file))
