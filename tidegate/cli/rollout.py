"""``tidegate rollout``: where rollouts stand, asked of a running control plane, and what is done to them by hand."""

import json

import click
import msgspec
from rich import box
from rich.console import Console
from rich.table import Table

from tidegate.cli._admin import ask, width_for_pipes
from tidegate.cli._live import act

_admin = click.option(
    "--admin", default="127.0.0.1:9090", show_default=True, metavar="HOST:PORT", help="The admin address."
)


class _Side(msgspec.Struct):
    pool: str
    requests: int
    failures: int
    ttft_p50_seconds: float | None
    tpot_p50_seconds: float | None


class _Rollout(msgspec.Struct):
    route: str
    canary: _Side
    stable: _Side
    phase: str
    step: int
    steps: list[float]
    share_percent: float
    reason: str
    waits_for: str


class _Page(msgspec.Struct):
    rollouts: list[_Rollout]


@click.group("rollout", short_help="Print the rollouts, or pause, resume, promote or roll one back.")
def command() -> None:
    """Look at the rollouts of a running control plane, or take one in hand; status 1 when that is not possible."""


@command.command("status")
@_admin
@click.option("--json", "as_json", is_flag=True, help="Print the answer as it came.")
def status(admin: str, as_json: bool) -> None:
    """Print where the rollouts stand, and what they wait for."""
    body, page = ask(admin, "/rollouts", _Page)
    if as_json:
        click.echo(json.dumps(json.loads(body), indent=2))
        return
    _print(page.rollouts)


@command.command("pause")
@click.argument("route")
@_admin
def pause(route: str, admin: str) -> None:
    """Keep the rollout of ROUTE at its step until it is resumed. It is still rolled back where it fails."""
    _act(admin, route, "pause")


@command.command("resume")
@click.argument("route")
@_admin
def resume(route: str, admin: str) -> None:
    """Go on with the rollout of ROUTE at the step where it was paused."""
    _act(admin, route, "resume")


@command.command("promote")
@click.argument("route")
@_admin
def promote(route: str, admin: str) -> None:
    """Go on with the rollout of ROUTE: to its next step, or from a rollback to its first."""
    _act(admin, route, "promote")


@command.command("rollback")
@click.argument("route")
@_admin
def rollback(route: str, admin: str) -> None:
    """Take all requests from the canary of ROUTE."""
    _act(admin, route, "rollback")


def _act(admin: str, route: str, action: str) -> None:
    _print([msgspec.json.decode(act(admin, "/rollouts", {"route": route, "action": action}), type=_Rollout)])


def _print(rollouts: list[_Rollout]) -> None:
    table = Table(box=box.SIMPLE_HEAD, padding=0, pad_edge=False)
    for heading in ("route", "phase", "step", "canary", "share", "failed", "stable", "failed", "because", "waits for"):
        table.add_column(heading, no_wrap=True)
    for one in rollouts:
        table.add_row(
            *(one.route, one.phase, f"{one.step}/{len(one.steps)}", one.canary.pool, f"{one.share_percent:g} %"),
            *(_failed(one.canary), one.stable.pool, _failed(one.stable), one.reason or "-", one.waits_for or "-"),
        )
    console = Console()
    width_for_pipes(console)
    console.print(table)


def _failed(side: _Side) -> str:
    return f"{side.failures}/{side.requests}"
