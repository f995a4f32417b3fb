"""``tidegate queue``: what waits for room, asked of a running control plane."""

import json

import click
import msgspec
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tidegate.cli._admin import ask, width_for_pipes


class _Waits(msgspec.Struct):
    tenant: str
    priority: int
    requests: int


class _Class(msgspec.Struct):
    name: str = msgspec.field(name="class")
    requests: int
    tokens: int
    bytes: int
    oldest_seconds: float
    waiting: list[_Waits] = []


class _Queue(msgspec.Struct):
    pool: str
    classes: list[_Class]
    tokens_per_second: float | None = None
    kept_places: int = 0


class _Page(msgspec.Struct):
    queues: list[_Queue]


@click.command("queue", short_help="Print what waits for room.")
@click.option("--admin", default="127.0.0.1:9090", show_default=True, metavar="HOST:PORT", help="The admin address.")
@click.option("--json", "as_json", is_flag=True, help="Print the answer as it came.")
def command(admin: str, as_json: bool) -> None:
    """Print what waits in a running control plane, by pool and class, and whose it is.

    Exit with status 1 when it cannot be asked.
    """
    body, page = ask(admin, "/queue", _Page)
    if as_json:
        click.echo(json.dumps(json.loads(body), indent=2))
        return
    table = Table(box=box.SIMPLE_HEAD, padding=0, pad_edge=False)
    for heading in ("pool", "class"):
        table.add_column(heading, no_wrap=True)
    for heading in ("requests", "tokens", "bytes", "oldest", "tokens/s", "kept"):
        table.add_column(heading, no_wrap=True, justify="right")
    for queue in page.queues:
        rate = "-" if queue.tokens_per_second is None else f"{queue.tokens_per_second:.0f}"
        for one in queue.classes:
            oldest = f"{one.oldest_seconds:.1f} s" if one.requests else "-"
            table.add_row(
                queue.pool,
                one.name,
                str(one.requests),
                str(one.tokens),
                str(one.bytes),
                oldest,
                rate,
                str(queue.kept_places),
            )
    console = Console()
    width_for_pipes(console)
    console.print(table)
    if any(one.waiting for queue in page.queues for one in queue.classes):
        console.print(_askers(page))


def _askers(page: _Page) -> Table:
    table = Table(box=box.SIMPLE_HEAD, padding=0, pad_edge=False)
    for heading in ("pool", "class", "tenant"):
        table.add_column(heading, no_wrap=True)
    for heading in ("priority", "requests"):
        table.add_column(heading, no_wrap=True, justify="right")
    for queue in page.queues:
        for one in queue.classes:
            for waits in one.waiting:
                cells = (queue.pool, one.name, waits.tenant or "-", str(waits.priority), str(waits.requests))
                # As Text: rich would take brackets for markup.
                table.add_row(*map(Text, cells))
            if (others := one.requests - sum(waits.requests for waits in one.waiting)) and one.waiting:
                table.add_row(queue.pool, one.name, "others", "", str(others))
    return table
