import json

import pytest
from aiohttp import web
from click.testing import CliRunner

from tests.cli.test_status import serving
from tidegate.cli import main
from tidegate.scheduling.budget import Left, Limit, Unit, Window
from tidegate.telemetry.admin import make_app
from tidegate.telemetry.tenants import describe

BUDGET = describe("tenant:acme", [Left(Limit(Unit.TOKENS, Window.MINUTE, 600), 450, 15.04)])
PAGE = {
    "tenants": [
        {"name": "acme", "tier": "gold", "priority": 1, "keys": ["ci"], "budgets": [BUDGET]},
        {"name": "free", "tier": None, "priority": 0, "keys": [], "budgets": []},
    ],
    "requests_held": 1,
}


def app() -> web.Application:
    return make_app(lambda: b"", list, dict, lambda: PAGE)


def test_what_is_left_is_printed_as_a_table() -> None:
    with serving(app()) as address:
        result = CliRunner().invoke(main, ["tenants", "--admin", address])
    assert result.exit_code == 0
    rows = [line.split() for line in result.output.splitlines()]
    assert ["acme", "gold", "tenant:acme", "tokens_per_minute", "450", "600", "15.1", "s"] in rows
    assert ["free", "-", "-", "none", "-", "-", "-"] in rows


@pytest.mark.parametrize(
    ("sharing", "line"),
    [
        ({"is_shared": True, "reason": "", "replicas": 3, "parts": 3}, "Shared by 3 replicas through Redis."),
        (
            {"is_shared": False, "reason": "timeout: [none]", "replicas": 2, "parts": 4},
            "Not shared: this replica keeps 1/4 of each limit, which is what is shown. Redis: timeout: [none]",
        ),
    ],
    ids=["shared", "divided"],
)
def test_how_limits_are_shared_is_said(sharing: dict[str, object], line: str) -> None:
    with serving(make_app(lambda: b"", list, dict, lambda: {**PAGE, "sharing": sharing})) as address:
        result = CliRunner().invoke(main, ["tenants", "--admin", address])
    assert line in " ".join(result.output.split())


def test_the_answer_can_be_had_as_it_came() -> None:
    with serving(app()) as address:
        result = CliRunner().invoke(main, ["tenants", "--admin", address, "--json"])
    assert json.loads(result.output) == PAGE


def test_without_tenants_there_are_none() -> None:
    with serving(make_app(lambda: b"", list, dict)) as address:
        result = CliRunner().invoke(main, ["tenants", "--admin", address, "--json"])
    assert json.loads(result.output) == {"tenants": [], "requests_held": 0}


def test_who_is_not_there_is_told_of() -> None:
    result = CliRunner().invoke(main, ["tenants", "--admin", "127.0.0.1:1"])
    assert result.exit_code == 1
    assert "cannot reach the admin port at 127.0.0.1:1" in result.output
