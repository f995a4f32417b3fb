"""``tidegate status`` against a live admin server, and against all that is none."""

import asyncio
import contextlib
import json
import socket
import threading
from collections.abc import Iterator

import pytest
from aiohttp import web
from click.testing import CliRunner, Result

from tests.ports import free_port
from tidegate.cli import _admin, main
from tidegate.fleet.health import HealthStatus, Reachability
from tidegate.fleet.view import EndpointView, PoolView
from tidegate.telemetry.admin import make_app
from tidegate.telemetry.discovery import SourceReport
from tidegate.telemetry.discovery import describe as describe_sources
from tidegate.telemetry.status import describe

BUSY = EndpointView("10.0.0.1:8000", 1, Reachability.REACHABLE, False, 3, 4200, 5.0, 6000.0, 4.0, 1.0, 0.256, 0.75)
SILENT = EndpointView("[fd00::7]:8000", 1, Reachability.UNKNOWN, False, 0, 0, 0.0, 0.0, None, None, None, None)
DEAD = SILENT._replace(
    address="10.0.0.2:8000", reachability=Reachability.UNREACHABLE, ejected=True, health=HealthStatus.EJECTED
)


@contextlib.contextmanager
def serving(app: web.Application) -> Iterator[str]:
    """Serve ``app`` in a thread, as the command runs a loop of its own; yield its address."""
    port, started, stop = free_port(), threading.Event(), asyncio.Event()
    loop = asyncio.new_event_loop()

    async def serve() -> None:
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", port).start()
        started.set()
        await stop.wait()
        await runner.cleanup()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    try:
        assert started.wait(10)
        yield f"127.0.0.1:{port}"
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(10)
        loop.close()


def admin() -> web.Application:
    views = [
        PoolView("default", "vllm", ("*",), (BUSY, SILENT._replace(health=HealthStatus.WARMING, share=0.3))),
        PoolView("second", "none", ("*",), (DEAD,)),
    ]
    left_out = [("127.0.0.1:1", "loopback"), ("127.0.0.1:2", "loopback")]
    sources = describe_sources([SourceReport("second", "file", 0, 7, 1, 2.0, "failing", "not valid YAML", left_out)])
    page = describe(views, version="1", config_file=None, uptime_seconds=1, reservations=3, discovery=sources)
    return make_app(lambda: b"", list, lambda: page)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["status", *arguments])


def answering(text: str, code: int = 200) -> web.Application:
    async def page(_: web.Request) -> web.Response:
        return web.Response(text=text, status=code)

    app = web.Application()
    app.router.add_get("/status", page)
    return app


def test_the_fleet_is_printed_as_a_table_with_a_dash_for_the_unknown() -> None:
    with serving(admin()) as address:
        result = run("--admin", address)
    assert result.exit_code == 0, result.output
    rows = [line.split() for line in result.output.splitlines() if ":8000" in line]
    assert rows == [
        ["default", "10.0.0.1:8000", "yes", "healthy", "3", "4200", "4", "1", "26%", "0.8", "s"],
        ["default", "[fd00::7]:8000", "-", "warming", "30%", "0", "0", "-", "-", "-", "-"],
        ["second", "10.0.0.2:8000", "no", "ejected", "0", "0", "-", "-", "-", "-"],
    ]


def test_workers_are_listed_below_where_there_are_several() -> None:
    workers = [
        {"port": 18001, "state": "ready", "pid": 17, "restarts": 0},
        {"port": 18002, "state": "starting", "pid": None, "restarts": 3},
    ]
    page = describe([], version="1", config_file=None, uptime_seconds=1, reservations=0, workers=workers)
    with serving(make_app(lambda: b"", list, lambda: page)) as address:
        result = run("--admin", address)
    assert result.exit_code == 0, result.output
    rows = [line.split() for line in result.output.splitlines() if " 1800" in line]
    assert rows == [["1", "18001", "ready", "0", "17"], ["2", "18002", "starting", "3", "-"]]


def test_the_answer_is_printed_as_json_when_asked_for() -> None:
    with serving(admin()) as address:
        result = run("--admin", address, "--json")
    assert result.exit_code == 0
    page = json.loads(result.output)
    assert [pool["name"] for pool in page["pools"]] == ["default", "second"]
    assert page["pools"][0]["endpoints"][0]["tokens"] == 6000.0


def test_an_admin_port_that_nobody_listens_on_is_one_clear_line() -> None:
    address = f"127.0.0.1:{free_port()}"
    result = run("--admin", address)
    assert result.exit_code == 1
    assert result.output == f"Error: cannot reach the admin port at {address}: Connection refused\n"


@pytest.mark.parametrize(
    ("text", "code", "expected"),
    [
        ("<html>", 200, "answers, but not as Tidegate's admin port does"),
        ('{"pools": [{"name": 1}]}', 200, "answers, but not as Tidegate's admin port does"),
        ("no", 404, "answered /status with 404"),
    ],
)
def test_another_server_is_told_from_ours(text: str, code: int, expected: str) -> None:
    with serving(answering(text, code)) as address:
        result = run("--admin", address)
    assert result.exit_code == 1
    assert result.output == f"Error: {address} {expected}\n"


def test_a_server_that_never_answers_does_not_hang_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_admin, "DEADLINE", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        result = run("--admin", address)
    assert result.exit_code == 1
    assert result.output.startswith(f"Error: {address} did not answer within")


@pytest.mark.parametrize("address", ["", "127.0.0.1:99999", "not an address", "[::1"])
def test_an_address_that_is_none_is_one_clear_line(address: str) -> None:
    result = run("--admin", address)
    assert result.exit_code == 1
    assert result.output.startswith("Error: cannot reach the admin port at ")
    assert len(result.output.splitlines()) == 1


def test_what_a_source_says_and_is_left_out_is_named() -> None:
    with serving(admin()) as address:
        result = CliRunner().invoke(main, ["status", "--admin", address])
    said = " ".join(result.output.split())
    assert "pool second: the file source says endpoints that are left out: 127.0.0.1:1 (loopback);" in said
    assert "and 5 more" in said
    assert "the file source fails, what it said last goes on: not valid YAML" in said
