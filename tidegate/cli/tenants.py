"""``tidegate tenants``: what tenants may still use, asked of a running control plane."""

import json
from collections.abc import Sequence

import click
import msgspec
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tidegate.cli._admin import ask, width_for_pipes


class _Limit(msgspec.Struct):
    limit: str
    amount: int
    at_once: int
    left: int
    reset_seconds: float


class _Budget(msgspec.Struct):
    scope: str
    limits: list[_Limit]


class _Tenant(msgspec.Struct):
    name: str
    priority: int
    budgets: list[_Budget]
    tier: str | None = None


class _Sharing(msgspec.Struct):
    is_shared: bool
    reason: str
    replicas: int
    parts: int


class _Page(msgspec.Struct):
    tenants: list[_Tenant]
    sharing: _Sharing | None = None


@click.command("tenants", short_help="Print what tenants may still use.")
@click.option("--admin", default="127.0.0.1:9090", show_default=True, metavar="HOST:PORT", help="The admin address.")
@click.option("--json", "as_json", is_flag=True, help="Print the answer as it came.")
def command(admin: str, as_json: bool) -> None:
    """Print the tenants' budgets as a running control plane counts them; exit with status 1 when it cannot be asked."""
    body, page = ask(admin, "/tenants", _Page)
    if as_json:
        click.echo(json.dumps(json.loads(body), indent=2))
        return
    table = Table(box=box.SIMPLE_HEAD, padding=0, pad_edge=False)
    for heading in ("tenant", "tier", "scope", "limit"):
        table.add_column(heading, no_wrap=True)
    for heading in ("left", "of", "whole again"):
        table.add_column(heading, no_wrap=True, justify="right")
    for tenant in page.tenants:
        for row in _rows(tenant):
            table.add_row(tenant.name, tenant.tier or "-", *map(Text, row))
    console = Console()
    width_for_pipes(console)
    console.print(table)
    if page.sharing is not None:
        console.print(Text(_said(page.sharing)))


def _said(sharing: _Sharing) -> str:
    if sharing.is_shared:
        return f"Shared by {sharing.replicas} replicas through Redis."
    share = f"this replica keeps 1/{sharing.parts} of each limit, which is what is shown"
    return f"Not shared: {share}. Redis: {sharing.reason}"


def _rows(tenant: _Tenant) -> Sequence[tuple[str, ...]]:
    rows = [
        (budget.scope, one.limit, str(one.left), str(one.at_once), f"{one.reset_seconds:.1f} s")
        for budget in tenant.budgets
        for one in budget.limits
    ]
    return rows or [("-", "none", "-", "-", "-")]
