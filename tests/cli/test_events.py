"""``tidegate events`` and ``tidegate explain --endpoint``, against a live admin server."""

import json

from click.testing import CliRunner, Result

from tests.cli.test_status import serving
from tests.fleet.declare import A, B
from tests.runtime.test_health_events import OPEN, XID, Told
from tidegate.cli import main
from tidegate.fleet.events import EvidenceReported, TimePassed
from tidegate.fleet.evidence import Evidence, Verdict
from tidegate.telemetry.admin import make_app


def asked(told: Told, *arguments: str) -> Result:
    with serving(make_app(lambda: b"", list, dict, more=told.part.pages())) as address:
        return CliRunner().invoke(main, [*arguments, "--admin", address])


def eventful() -> Told:
    told = Told()
    told.now = 12.0
    told.apply(EvidenceReported(A, XID), EvidenceReported(B, Evidence("http", Verdict.IMPAIRED, ("http_slow",))))
    return told


def test_events_are_printed_with_their_reasons() -> None:
    result = asked(eventful(), "events")
    assert result.exit_code == 0, result.output
    rows = [line.split() for line in result.output.splitlines() if ":8000" in line]
    assert [row[2:10] for row in rows] == [
        ["default", A, "ejected", "healthy", "for", "12", "s", "xid_79"],
        ["default", B, "degraded", "healthy", "for", "12", "s", "http_slow"],
    ]


def test_those_of_one_endpoint_can_be_had_as_json() -> None:
    told = eventful()
    result = asked(told, "events", "--endpoint", B, "--pool", "default", "--last", "5", "--json")
    assert json.loads(result.output) == {"events": told.history(address=B)}


def test_an_endpoint_is_explained_in_sentences() -> None:
    result = asked(eventful(), "explain", "--endpoint", A)
    assert result.exit_code == 0, result.output
    assert result.output.splitlines()[:3] == [
        f"endpoint {A} of pool default is ejected for 0 s: xid_79",
        "it gets 0% of its share, and was ejected once of late",
        (
            "pace as learned: 10.5 ms a step (expected 10.5 ms), 103 ms for 1000 prompt tokens (expected 103 ms); "
            "0 and 0 samples of its own"
        ),
    ]
    assert "agent said failed (xid_79) 0.0 s ago, counts for 20 s more: GPU 0" in result.output
    assert "what would change it: it is held for 5 s more at least" in result.output
    told = json.loads(asked(eventful(), "explain", "--endpoint", A, "--json").output)
    assert told["status"] == "ejected"


def test_every_state_says_what_would_change_it() -> None:
    told = Told()
    assert "three times in a row" in asked(told, "explain", "--endpoint", A).output
    told.apply(EvidenceReported(A, OPEN), EvidenceReported(B, OPEN))
    spared = asked(told, "explain", "--endpoint", A).output
    assert "panic: 2 of 3 endpoints look bad" in spared
    assert "it would be ejected if fewer of its pool were bad" in spared
    told.apply(EvidenceReported(A, Evidence("breaker", Verdict.SOUND)))
    assert "of calm" in asked(told, "explain", "--endpoint", A).output
    told.now = 5.0
    told.apply(TimePassed())
    told.now = 26.0
    told.apply(TimePassed())
    assert "it has its whole share in 30 s" in asked(told, "explain", "--endpoint", B).output


def test_what_is_not_there_is_said_with_status_1() -> None:
    result = asked(Told(), "explain", "--endpoint", "10.9.9.9:1")
    assert (result.exit_code, result.output) == (1, "Error: there is no endpoint '10.9.9.9:1'\n")
    assert CliRunner().invoke(main, ["explain", "--live", "--endpoint", A]).exit_code == 2
