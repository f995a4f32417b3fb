"""``tidegate explain --live``: a question to a running control plane."""

import json
import socket
from collections.abc import Awaitable, Callable

import pytest
from aiohttp import web
from click.testing import CliRunner, Result

from tests.cli.test_status import serving
from tests.ports import free_port
from tests.scheduling.ask import A, B, ask, candidate
from tidegate.cli import _admin, main
from tidegate.scheduling.explain import Case
from tidegate.scheduling.policy import Policy
from tidegate.telemetry.admin import UnanswerableError, make_app
from tidegate.telemetry.decision_record import encode

asked: list[dict[str, object]] = []


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["explain", *map(str, arguments)])


async def answered(body: bytes) -> bytes:
    asked.append(json.loads(body))
    if asked[-1]["model"] == "other":
        raise UnanswerableError(404, "no pool serves the model 'other'")
    if asked[-1]["model"] == "\n":
        raise UnanswerableError(400, "not a question")
    case = Case(ask("live", prompt=128), Policy("least_tokens"), 2, (candidate(A, tokens=9), candidate(B)), (), (B, A))
    return encode(case, 1.0)


def plane(explain: Callable[[bytes], Awaitable[bytes]] | None = answered) -> web.Application:
    return make_app(lambda: b"", list, dict, explain=explain)


def test_it_tells_how_a_request_would_be_decided_now() -> None:
    with serving(plane()) as address:
        told = run("--live", "--admin", address, "--model", "m", "--prompt-tokens", 128, "--prompt", "hello")
        in_json = run("--live", "--admin", address, "--prompt-tokens", 128, "--max-tokens", 7, "--json")
    assert told.exit_code == 0, told.output
    assert "request live:" in told.output
    assert f"pick {B}, runner-up {A}" in told.output
    assert json.loads(in_json.output)["order"] == [B, A]
    assert asked[-2:] == [
        {"model": "m", "prompt": "hello", "prompt_tokens": 128, "max_tokens": None, "pool": "", "session": ""},
        {"model": "", "prompt": None, "prompt_tokens": 128, "max_tokens": 7, "pool": "", "session": ""},
    ]


@pytest.mark.parametrize(("model", "said"), [("other", "no pool serves the model 'other'"), ("\n", "not a question")])
def test_what_the_control_plane_cannot_answer_is_said_in_its_words(model: str, said: str) -> None:
    with serving(plane()) as address:
        told = run("--live", "--admin", address, "--model", model, "--prompt", "x")
    assert (told.exit_code, told.output) == (1, f"Error: {said}\n")


def test_a_control_plane_that_is_not_there_is_said() -> None:
    address = f"127.0.0.1:{free_port()}"
    told = run("--live", "--admin", address, "--prompt", "x")
    assert told.exit_code == 1
    assert told.output == f"Error: cannot reach the admin port at {address}: Connection refused\n"
    assert run("--live", "--admin", "no such:place:x", "--prompt", "x").exit_code == 1


def test_one_that_is_silent_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_admin, "DEADLINE", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        told = run("--live", "--admin", f"127.0.0.1:{silent.getsockname()[1]}", "--prompt", "x")
    assert told.exit_code == 1
    assert "did not answer within 0 s" in told.output


def test_one_without_such_a_page_is_said() -> None:
    with serving(plane(None)) as address:
        told = run("--live", "--admin", address, "--prompt", "x")
    assert (told.exit_code, told.output) == (1, f"Error: {address} answered /explain with 404\n")


def test_an_answer_that_is_no_record_is_said() -> None:
    async def nonsense(_: bytes) -> bytes:
        return b"nonsense"

    with serving(plane(nonsense)) as address:
        told = run("--live", "--admin", address, "--prompt", "x")
    assert told.exit_code == 1
    assert f"{address}: not a decision record" in told.output


def test_it_wants_a_record_or_a_question() -> None:
    assert "expected one of --record FILE, --live and --endpoint" in run().output
    assert (
        "expected one of --record FILE, --live and --endpoint"
        in run("--live", "--record", __file__, "--prompt", "x").output
    )
    assert "--live needs --prompt or --prompt-tokens" in run("--live").output
