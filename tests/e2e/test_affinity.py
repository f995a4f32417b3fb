"""Requests that have something in common meet at one engine, through a real Envoy."""

import http.client
import json
import subprocess
from pathlib import Path

import pytest

from tests.e2e.stack import MODEL, ROOT, Stack, configuration, engines, tidegate, until, up

LONG = "You are a careful assistant who answers in one short sentence. " * 60


def ask(stack: Stack, *messages: str, session: str = "") -> tuple[str, int]:
    """Return who answered, and how many tokens it had in its cache."""
    connection = http.client.HTTPConnection("127.0.0.1", stack.config["listener"]["port"], timeout=30)
    given = [{"role": "user", "content": message} for message in messages]
    body = json.dumps({"model": MODEL, "messages": given, "max_tokens": 2})
    headers = {"content-type": "application/json", **({"x-session-id": session} if session else {})}
    connection.request("POST", "/v1/chat/completions", body, headers)
    answer = connection.getresponse()
    told = json.loads(answer.read())
    connection.close()
    assert answer.status == 200, told
    return answer.headers["x-served-by"], (told["usage"].get("prompt_tokens_details") or {}).get("cached_tokens", 0)


@pytest.mark.parametrize("exchanges", [1, 2])
def test_a_conversation_goes_back_to_the_engine_that_has_it_cached(tmp_path: Path, exchanges: int) -> None:
    decisions = tmp_path / "decisions.jsonl"
    with engines(tmp_path, "h100", "h100", "h100") as ports:
        config = configuration(ports, policy="prefix_affinity")
        config.setdefault("control", {})["ext_proc_exchanges"] = exchanges
        config["decision_log"] = {"file": str(decisions), "sample": 1.0}
        with up(tmp_path, config) as stack:
            for number in range(4):
                first, _ = ask(stack, f"{number} {LONG}", "hello")
                for turn in range(3):
                    again, cached = ask(stack, f"{number} {LONG}", "hello", *["go on"] * turn)
                    assert again == first
                    assert cached > 400
            until(lambda: decisions.is_file() and decisions.read_bytes().count(b"\n") == 16, 5, "all are recorded")
    command = tidegate("explain", "--record", str(decisions))
    told = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert "policy prefix_affinity" in told
    assert "looked at 3 of 3 endpoints" in told
    assert f"pick {again}, runner-up " in told


def test_a_session_stays_at_its_engine_and_moves_once_when_that_goes(tmp_path: Path) -> None:
    with (
        engines(tmp_path, "h100", "h100", "h100") as ports,
        up(tmp_path, configuration(ports, policy="session")) as stack,
    ):
        homes = {name: ask(stack, "hello", session=name)[0] for name in map(str, range(12))}
        assert len(set(homes.values())) > 1
        assert {name: ask(stack, "hello", session=name)[0] for name in homes} == homes
        gone = homes["0"]
        members = stack.config["pools"][0]["endpoints"]
        members[:] = [member for member in members if member["address"] != gone]
        stack.write_config()
        until(lambda: ask(stack, "hello", session="0")[0] != gone, 10, "it has another home")
        after = {name: ask(stack, "hello", session=name)[0] for name in homes}
        assert {name for name in homes if after[name] != homes[name]} == {
            name for name, home in homes.items() if home == gone
        }
        assert {name: ask(stack, "hello", session=name)[0] for name in homes} == after
