"""``tidegate check``: say what is wrong with a configuration, and start nothing."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from tidegate.cli._options import load_or_exit
from tidegate.config import read
from tidegate.discovery.allowed import allows, why_not
from tidegate.discovery.file import Unusable, parse
from tidegate.discovery.held import MAX_NAMED


@click.command("check", short_help="Say what is wrong with a configuration file.")
@click.argument("file", type=click.Path(path_type=Path))
def command(file: Path) -> None:
    """Check FILE; exit with status 2 and a line for each fault when it cannot be used."""
    config = load_or_exit(file)
    endpoints = sum(len(pool.endpoints) for pool in config.pools)
    click.echo(f"{file}: {_counted(len(config.pools), 'pool')}, {_counted(endpoints, 'endpoint')}")
    for pool in config.pools:
        if pool.discovery is not None and pool.discovery.file is not None:
            for line in _left_out(Path(pool.discovery.file.path), pool.discovery.allow):
                click.echo(f"{file}: pool {pool.name}: {line}", err=True)


def _left_out(source: Path, allow: Sequence[str]) -> Iterator[str]:
    """Yield what is wrong with a list of endpoints, as far as it is on this machine; it may well be elsewhere."""
    try:
        found = parse(read(source)).found
    except OSError:
        return
    except Unusable as error:
        yield f"{source} says nothing that can be used: {error}"
        return
    allowed = allows(allow)
    refused = [one.endpoint.address for one in found.values() if not allowed(one.endpoint.address)]
    if refused:
        more = f", and {len(refused) - MAX_NAMED} more" if len(refused) > MAX_NAMED else ""
        yield f"{source} names endpoints that are left out: {', '.join(refused[:MAX_NAMED])}{more} ({why_not(allow)})"


def _counted(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
