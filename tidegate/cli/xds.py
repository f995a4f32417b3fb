"""``tidegate xds``: which Envoys are connected and what they have, asked of a running control plane."""

import json

import click
import msgspec
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tidegate.cli._admin import ask, width_for_pipes


class _Refused(msgspec.Struct):
    name: str
    version: str
    reason: str


class _Type(msgspec.Struct):
    type: str
    held: int
    waits_for_answer: bool
    refused: list[_Refused]


class _Client(msgspec.Struct):
    node: str
    group: str
    variant: str
    up_to_date: bool
    types: list[_Type]


class _Page(msgspec.Struct):
    clients: list[_Client]


@click.command("xds", short_help="Print which Envoys are connected, and what they refused.")
@click.option("--admin", default="127.0.0.1:9090", show_default=True, metavar="HOST:PORT", help="The admin address.")
@click.option("--json", "as_json", is_flag=True, help="Print the answer as it came.")
def command(admin: str, as_json: bool) -> None:
    """Print what each connected Envoy has; exit with status 1 when the control plane cannot be asked.

    What an Envoy refused is not sent to it again; the reason is Envoy's.
    """
    body, page = ask(admin, "/xds", _Page)
    if as_json:
        click.echo(json.dumps(json.loads(body), indent=2))
        return
    table = Table(box=box.SIMPLE_HEAD, padding=0, pad_edge=False)
    for heading in ("node", "group", "variant", "type", "held", "state"):
        table.add_column(heading, no_wrap=True)
    for client in page.clients:
        for kind in client.types:
            state = "refused" if kind.refused else "asked" if kind.waits_for_answer else "good"
            table.add_row(
                Text(client.node or "-"), client.group or "-", client.variant, kind.type, str(kind.held), state
            )
    console = Console()
    width_for_pipes(console)
    console.print(table)
    for client in page.clients:
        for kind in client.types:
            for one in kind.refused:
                console.print(Text(f"{client.node or '-'} refused {kind.type} {one.name}: {one.reason}"))
