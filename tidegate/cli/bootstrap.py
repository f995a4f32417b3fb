"""``tidegate bootstrap``: print what Envoy must know before it can ask for the rest."""

from pathlib import Path

import click

from tidegate.cli._options import config_option, load_or_exit
from xds import bootstrap


@click.command("bootstrap", short_help="Print the Envoy bootstrap that joins a control plane.")
@config_option
@click.option("--group", metavar="NAME", help="Of which group it is to be. Default: whichever takes it.")
@click.option(
    "--id", "node_id", default="", metavar="TEXT", help="What it calls itself. Default: by its group, or envoy."
)
def command(file: Path, group: str | None, node_id: str) -> None:
    """Print the Envoy bootstrap (YAML) that joins the control plane of a configuration."""
    config = load_or_exit(file)
    try:
        node = config.envoys.node(group, node_id)
    except ValueError as error:
        click.echo(f"tidegate: {error}", err=True)
        raise SystemExit(2) from None
    click.echo(bootstrap.render(config, bootstrap.template(), node), nl=False)
