"""``tidegate serve``: the control plane alone, for an Envoy that runs elsewhere."""

from pathlib import Path

import click

from tidegate.cli._options import LogFormat, config_option, load_or_exit, log_format_option
from tidegate.cli._plane import run_or_exit
from tidegate.config_values import FOLLOWED
from tidegate.runtime import descriptors
from tidegate.runtime.control_plane import ControlPlane
from tidegate.telemetry import log


@click.command("serve", short_help="Run the control plane alone.")
@config_option
@log_format_option
def command(file: Path, log_format: LogFormat) -> None:
    """Run the control plane: decisions, discovery, access-log intake, metrics. SIGHUP reloads the configuration."""
    log.setup(log_format)
    descriptors.raise_limit()
    config = load_or_exit(file, FOLLOWED)
    run_or_exit(ControlPlane(config, file, log_format))
