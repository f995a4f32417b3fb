"""``tidegate bootstrap``: print what Envoy must know before it can ask for the rest."""

from pathlib import Path

import click

from tidegate.cli._options import config_option, load_or_exit
from xds import bootstrap


@click.command("bootstrap", short_help="Print the Envoy bootstrap that joins a control plane.")
@config_option
def command(file: Path) -> None:
    """Print the Envoy bootstrap (YAML) that joins the control plane of a configuration."""
    click.echo(bootstrap.render(load_or_exit(file), bootstrap.template()), nl=False)
