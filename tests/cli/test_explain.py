"""``tidegate explain``: a recorded decision, told."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.scheduling.ask import A, B, C, ask, candidate
from tidegate.cli import main
from tidegate.fleet.health import Reachability
from tidegate.scheduling.explain import Case
from tidegate.scheduling.policy import Policy
from tidegate.telemetry.decision_record import encode


def run(*args: object) -> Result:
    return CliRunner().invoke(main, ["explain", *map(str, args)])


@pytest.fixture
def file(tmp_path: Path) -> Path:
    offered = (
        candidate(A, reachability=Reachability.UNREACHABLE),
        candidate(B, tokens=500, requests=2, cached=64, waiting=1.0),
        candidate(C, tokens=100, waiting=5.0),
    )
    written = tmp_path / "decisions.jsonl"
    with written.open("wb") as out:
        for id_, policy, pick in (("aa-1", "least_tokens", C), ("bb-2", "weighted_scores", B), ("cc-3", "random", B)):
            request = ask(id_, prompt=128)
            out.write(encode(Case(request, Policy(policy), 3, offered, (0.1,), (pick,)), 1.0))
    return written


def test_the_last_one_is_told_unless_another_is_asked_for(file: Path) -> None:
    assert "request cc-3:" in run("--record", file).output
    assert "request aa-1:" in run("--record", file, "--id", "aa").output


def test_it_tells_who_was_left_out_the_scores_the_pick_and_the_runner_up(file: Path) -> None:
    told = run("--record", file, "--id", "bb-2").output
    assert "policy weighted_scores" in told
    assert "looked at 3 of 3 endpoints" in told
    assert f"filter reachable: left out {A}" in told
    assert f"pick {B}, runner-up {C}" in told
    heading = next(line for line in told.splitlines() if line.split()[:1] == ["endpoint"])
    assert heading.split()[1:4] == ["requests", "tokens", "cached"]
    assert {"queue", "kv_usage", "prefix", "sum"} <= set(heading.split())
    row = next(line for line in told.splitlines() if line.split()[:1] == [B])
    assert row.split()[1:4] == ["2", "500", "64"]


def test_where_what_was_remembered_decided_it_says_so(tmp_path: Path) -> None:
    written = tmp_path / "d.jsonl"
    case = Case(ask("q"), Policy("round_robin"), 2, (candidate(A), candidate(B)), (), (B, A))
    written.write_bytes(encode(case, 1.0))
    told = run("--record", written).output
    assert f"pick {B}, runner-up {A}" in told
    assert f"(without what the policy remembered, {A} would have been picked)" in told


def test_json_has_it_all(file: Path) -> None:
    told = json.loads(run("--record", file, "--id", "bb", "--json").output)
    assert (told["pick"], told["runner_up"], told["order"]) == (B, C, [B, C])
    assert told["figures"][B]["prefix"] == 1.5
    assert told["filters"][3] == {"filter": "reachable", "removed": [A], "passed_over": False}


def test_what_is_not_there_is_said(file: Path, tmp_path: Path) -> None:
    missing = run("--record", file, "--id", "zz")
    assert missing.exit_code == 1
    assert "no record of a request zz" in missing.output
    empty = tmp_path / "empty"
    empty.touch()
    assert "no record" in run("--record", empty).output
    assert run("--record", tmp_path / "nowhere").exit_code == 2


def test_what_is_no_record_is_said_with_its_line(file: Path) -> None:
    with file.open("ab") as out:
        out.write(b"nonsense\n")
    told = run("--record", file)
    assert told.exit_code == 1
    assert "decisions.jsonl:4: not a decision record" in told.output


def test_a_policy_of_another_release_is_said(tmp_path: Path) -> None:
    written = tmp_path / "d.jsonl"
    written.write_bytes(encode(Case(ask("q"), Policy("clairvoyant"), 1, (candidate(A),), (), (A,)), 1.0))
    told = run("--record", written)
    assert told.exit_code == 1
    assert "names something that this release does not know" in told.output


def test_it_names_the_route_if_one_led_there(file: Path, tmp_path: Path) -> None:
    written = tmp_path / "d.jsonl"
    request = ask("q")._replace(pool="batch", route="routes[2]")
    written.write_bytes(encode(Case(request, Policy("random"), 1, (candidate(A),), (), (A,)), 1.0))
    assert "to that pool by the route routes[2]\n" in run("--record", written).output
    assert json.loads(run("--record", written, "--json").output)["route"] == "routes[2]"
    assert "by the route" not in run("--record", file).output
