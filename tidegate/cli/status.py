"""``tidegate status``: the fleet as a table, asked of a running control plane."""

import json
from collections.abc import Iterator, Sequence

import click
import msgspec
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tidegate.cli._admin import ask, width_for_pipes


class _Endpoint(msgspec.Struct):
    address: str
    reachability: str
    ejected: bool
    inflight_requests: int
    inflight_tokens: int
    running: float | None = None
    waiting: float | None = None
    kv_usage: float | None = None
    report_age: float | None = None
    health: str = ""
    share: float = 1.0


class _Pool(msgspec.Struct):
    name: str
    endpoints: list[_Endpoint]


class _Worker(msgspec.Struct):
    port: int
    state: str
    restarts: int
    pid: int | None = None


class _LeftOut(msgspec.Struct):
    address: str
    reason: str


class _Source(msgspec.Struct):
    pool: str
    source: str
    refused: int
    left_out: list[_LeftOut]
    reason: str = ""


class _Status(msgspec.Struct):
    pools: list[_Pool]
    workers: list[_Worker] = []
    discovery: list[_Source] = []


@click.command("status", short_help="Print the fleet as a control plane sees it.")
@click.option("--admin", default="127.0.0.1:9090", show_default=True, metavar="HOST:PORT", help="The admin address.")
@click.option("--json", "as_json", is_flag=True, help="Print the answer as it came.")
def command(admin: str, as_json: bool) -> None:
    """Print the fleet as a running control plane sees it; exit with status 1 when it cannot be asked."""
    body, status = ask(admin, "/status", _Status)
    if as_json:
        click.echo(json.dumps(json.loads(body), indent=2))
    else:
        _print(status)


def _print(status: _Status) -> None:
    table = Table(box=box.SIMPLE_HEAD, padding=0, pad_edge=False)
    for heading in ("pool", "endpoint", "up", "health"):
        table.add_column(heading, no_wrap=True)
    for heading in ("requests", "tokens", "running", "waiting", "KV", "age"):
        table.add_column(heading, no_wrap=True, justify="right")
    for pool in status.pools:
        for endpoint in pool.endpoints:
            # As Text: rich would take the brackets of an IPv6 address for markup.
            table.add_row(*map(Text, _row(pool.name, endpoint)))
    console = Console()
    width_for_pipes(console)
    console.print(table)
    if status.workers:
        console.print(_workers(status.workers))
    for source in status.discovery:
        for line in _doubts(source):
            console.print(Text(line))


def _doubts(source: _Source) -> Iterator[str]:
    """Yield why a source's endpoints are not all that one may expect, a line for each reason."""
    whose = f"pool {source.pool}: the {source.source} source"
    if source.reason:
        yield f"{whose} fails, what it said last goes on: {source.reason}"
    if source.left_out:
        named = "; ".join(f"{one.address} ({one.reason})" for one in source.left_out)
        more = source.refused - len(source.left_out)
        yield f"{whose} says endpoints that are left out: {named}" + (f"; and {more} more" if more > 0 else "")


def _workers(workers: Sequence[_Worker]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, padding=0, pad_edge=False)
    table.add_column("worker", no_wrap=True)
    for heading in ("port", "state", "restarts", "pid"):
        table.add_column(heading, no_wrap=True, justify="left" if heading == "state" else "right")
    for number, worker in enumerate(workers, 1):
        table.add_row(str(number), str(worker.port), worker.state, str(worker.restarts), str(worker.pid or "-"))
    return table


def _row(pool: str, endpoint: _Endpoint) -> tuple[str, ...]:
    return (
        pool,
        endpoint.address,
        {"reachable": "yes", "unreachable": "no", "unreached": "no"}.get(endpoint.reachability, "-"),
        _health(endpoint),
        str(endpoint.inflight_requests),
        str(endpoint.inflight_tokens),
        _known("{:.0f}", endpoint.running),
        _known("{:.0f}", endpoint.waiting),
        _known("{:.0%}", endpoint.kv_usage),
        _known("{:.1f} s", endpoint.report_age),
    )


def _health(endpoint: _Endpoint) -> str:
    if not endpoint.health:  # an older release
        return "ejected" if endpoint.ejected else "-"
    lessened = endpoint.share < 1.0 and not endpoint.ejected
    return f"{endpoint.health} {endpoint.share:.0%}" if lessened else endpoint.health


def _known(shape: str, value: float | None) -> str:
    return "-" if value is None else shape.format(value)
