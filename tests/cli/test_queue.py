import json

from aiohttp import web
from click.testing import CliRunner

from tests.cli.test_status import serving
from tidegate.cli import main
from tidegate.scheduling.line import Standing, Waits
from tidegate.telemetry.admin import Page, make_app
from tidegate.telemetry.queues import describe

ASKERS = (Waits("acme", 5, 7), Waits("", 0, 3))
STANDINGS = (Standing("chat", False, 12, 3400, 56_000, 2.5, 3, ASKERS), Standing("chat", True, 0, 0, 0, 0.0, 3))


def app(rate: float | None) -> web.Application:
    page = Page("what waits", lambda _: describe(STANDINGS, lambda _: rate))
    return make_app(lambda: b"", list, dict, more={"/queue": page})


def test_what_waits_is_printed_as_a_table() -> None:
    with serving(app(1234.5)) as address:
        result = CliRunner().invoke(main, ["queue", "--admin", address])
    assert result.exit_code == 0, result.output
    rows = [line.split() for line in result.output.splitlines()]
    assert ["chat", "interactive", "12", "3400", "56000", "2.5", "s", "1234", "3"] in rows
    assert ["chat", "batch", "0", "0", "0", "-", "1234", "3"] in rows


def test_an_unknown_rate_is_no_number() -> None:
    with serving(app(None)) as address:
        result = CliRunner().invoke(main, ["queue", "--admin", address])
    rows = [line.split() for line in result.output.splitlines()]
    assert [row[-2] for row in rows if row[:1] == ["chat"] and len(row) > 5] == ["-", "-"]


def test_it_is_said_who_waits_with_what_priority_and_how_many_others() -> None:
    with serving(app(None)) as address:
        result = CliRunner().invoke(main, ["queue", "--admin", address])
    rows = [line.split() for line in result.output.splitlines()]
    assert ["chat", "interactive", "acme", "5", "7"] in rows
    assert ["chat", "interactive", "-", "0", "3"] in rows
    assert ["chat", "interactive", "others", "2"] in rows


def test_the_answer_can_be_had_as_it_came() -> None:
    with serving(app(None)) as address:
        result = CliRunner().invoke(main, ["queue", "--admin", address, "--json"])
    assert json.loads(result.output)["queues"][0]["pool"] == "chat"


def test_a_control_plane_whose_workers_have_the_queues_says_so() -> None:
    with serving(make_app(lambda: b"", list, dict)) as address:
        result = CliRunner().invoke(main, ["queue", "--admin", address])
    assert result.exit_code == 1
    assert "/queue" in result.output
