"""``tidegate check``: say what is wrong with a configuration, and start nothing."""

from pathlib import Path

import click

from tidegate.cli._options import load_or_exit


@click.command("check", short_help="Say what is wrong with a configuration file.")
@click.argument("file", type=click.Path(path_type=Path))
def command(file: Path) -> None:
    """Check FILE; exit with status 2 and a line for each fault when it cannot be used."""
    config = load_or_exit(file)
    endpoints = sum(len(pool.endpoints) for pool in config.pools)
    click.echo(f"{file}: {_counted(len(config.pools), 'pool')}, {_counted(endpoints, 'endpoint')}")


def _counted(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
