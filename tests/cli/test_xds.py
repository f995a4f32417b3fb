"""``tidegate xds``: which Envoys are connected, and what they refused."""

import json

from aiohttp import web
from click.testing import CliRunner

from tests.cli.test_status import serving
from tidegate.cli import main
from tidegate.telemetry.admin import Page, make_app

PAGE = {
    "clients": [
        {
            "node": "edge-1",
            "group": "edge",
            "variant": "delta",
            "up_to_date": True,
            "types": [
                {"type": "Cluster", "held": 3, "waits_for_answer": False, "refused": []},
                {
                    "type": "Listener",
                    "held": 1,
                    "waits_for_answer": False,
                    "refused": [{"name": "l", "version": "9f", "reason": "cannot bind"}],
                },
                {"type": "ClusterLoadAssignment", "held": 2, "waits_for_answer": True, "refused": []},
            ],
        }
    ]
}


def app() -> web.Application:
    return make_app(lambda: b"", list, dict, more={"/xds": Page("clients", lambda _: PAGE)})


def test_it_prints_what_each_envoy_has_and_what_it_refused() -> None:
    with serving(app()) as address:
        result = CliRunner().invoke(main, ["xds", "--admin", address])
    assert result.exit_code == 0, result.output
    rows = [line.split() for line in result.output.splitlines()]
    assert ["edge-1", "edge", "delta", "Cluster", "3", "good"] in rows
    assert ["edge-1", "edge", "delta", "Listener", "1", "refused"] in rows
    assert ["edge-1", "edge", "delta", "ClusterLoadAssignment", "2", "asked"] in rows
    assert "edge-1 refused Listener l: cannot bind" in result.output


def test_the_answer_can_be_had_as_it_came() -> None:
    with serving(app()) as address:
        result = CliRunner().invoke(main, ["xds", "--admin", address, "--json"])
    assert json.loads(result.output) == PAGE
