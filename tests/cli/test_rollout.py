"""``tidegate rollout``: looking at rollouts, and taking one in hand."""

import http.client
import json

import pytest
from aiohttp import web
from click.testing import CliRunner, Result

from tests.cli.test_status import serving
from tests.runtime.test_rollouts import Made
from tidegate.cli import main
from tidegate.telemetry.admin import make_app


def run(address: str, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["rollout", *arguments, "--admin", address])


def app(made: Made) -> web.Application:
    return make_app(lambda: b"", list, dict, more=made.rollouts.pages(), actions=made.rollouts.actions())


def test_it_prints_where_rollouts_stand_and_what_they_wait_for() -> None:
    made = Made()
    made.end("stable", times=7)
    made.end("canary", 500, times=1)
    with serving(app(made)) as address:
        told, in_json = run(address, "status"), run(address, "status", "--json")
    assert told.exit_code == 0, told.output
    (row,) = [line.split() for line in told.output.splitlines() if "chat" in line]
    assert row[:9] == ["chat", "advancing", "1/2", "canary", "10", "%", "1/1", "stable", "0/7"]
    assert "30 s more at this step" in told.output
    assert json.loads(in_json.output) == json.loads(json.dumps(made.rollouts.describe()))


def test_it_takes_one_in_hand() -> None:
    with serving(app(Made())) as address:
        for action, phase in (
            ("pause", "paused"),
            ("resume", "advancing"),
            ("promote", "advancing"),
            ("rollback", "rolled_back"),
        ):
            told = run(address, action, "chat")
            assert (told.exit_code, phase in told.output) == (0, True), told.output


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("pause", "x"), "Error: there is no rollout 'x': chat\n"),
        (("promote", "chat"), "Error: the rollout 'chat' is done\n"),
    ],
)
def test_what_cannot_be_done_is_said(arguments: tuple[str, ...], said: str) -> None:
    made = Made()
    for _ in range(2):
        made.rollouts.act({"route": "chat", "action": "promote"})
    with serving(app(made)) as address:
        told = run(address, *arguments)
    assert (told.exit_code, told.output) == (1, said)


def test_a_page_of_another_site_cannot_roll_back() -> None:
    """A browser sends a form, and JSON that says it is text, without asking."""
    made = Made()
    with serving(app(made)) as address:
        for kind, body in (
            ("text/plain", "{}"),
            ("application/json", "[]"),
            ("application/json", '{"route": 1}'),
            ("application/json", "[" * 200_000),
        ):
            connection = http.client.HTTPConnection(address)
            connection.request("POST", "/rollouts", body, {"content-type": kind})
            assert connection.getresponse().status == (415 if kind == "text/plain" else 400)
            connection.close()
    assert made.page()["phase"] == "advancing"
