"""``tidegate events``: what happened to endpoints' health, asked of a running control plane."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from urllib.parse import urlencode

import click
import msgspec
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tidegate.cli._admin import ask, width_for_pipes


class _Event(msgspec.Struct):
    at: float
    pool: str
    address: str
    event: str
    was: str
    was_seconds: float
    reasons: list[str]
    detail: str


class _Page(msgspec.Struct):
    events: list[_Event]


@click.command("events", short_help="Print what happened to endpoints' health.")
@click.option("--admin", default="127.0.0.1:9090", show_default=True, metavar="HOST:PORT", help="The admin address.")
@click.option("--pool", help="Of this pool alone.")
@click.option("--endpoint", metavar="IP:PORT", help="Of this endpoint alone.")
@click.option("--last", default=50, show_default=True, type=click.IntRange(1, 100_000), help="At most so many.")
@click.option("--json", "as_json", is_flag=True, help="Print the answer as it came.")
def command(admin: str, pool: str | None, endpoint: str | None, last: int, as_json: bool) -> None:
    """Print the last changes of endpoints' health that a running control plane remembers, with their reasons.

    It remembers a thousand. Exit with status 1 when it cannot be asked.
    """
    asked = {"pool": pool, "address": endpoint, "limit": str(last)}
    query = urlencode({key: value for key, value in asked.items() if value is not None})
    body, page = ask(admin, f"/events?{query}", _Page)
    if as_json:
        click.echo(json.dumps(json.loads(body), indent=2))
        return
    _print(page.events)


def _print(events: Sequence[_Event]) -> None:
    table = Table(box=box.SIMPLE_HEAD, padding=0, pad_edge=False)
    for heading in ("time", "pool", "endpoint", "became", "was", "reasons", "detail"):
        table.add_column(heading, no_wrap=heading != "detail")
    for one in events:
        when = datetime.fromtimestamp(one.at, UTC).strftime("%Y-%m-%d %H:%M:%S")
        was = f"{one.was} for {one.was_seconds:.0f} s" if one.was else "-"
        row = (when, one.pool, one.address or "-", one.event, was, ", ".join(one.reasons) or "-", one.detail)
        table.add_row(*map(Text, row))
    console = Console()
    width_for_pipes(console)
    console.print(table)
