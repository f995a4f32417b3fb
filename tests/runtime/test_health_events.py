"""The part that tells of endpoints' health: every change once in the log, once as a metric and once in the history."""

import logging

import pytest

from tests.configurations import EXAMPLE
from tests.fleet.declare import A, B, C, pool
from tidegate.config import parse
from tidegate.fleet.events import EvidenceReported, FleetEvent, PoolsDeclared, TimePassed
from tidegate.fleet.evidence import Evidence, Verdict
from tidegate.fleet.state import Fleet
from tidegate.runtime.health_events import KEPT, HealthEvents
from tidegate.telemetry.admin import UnanswerableError
from tidegate.telemetry.metrics import Metrics

XID = Evidence("agent", Verdict.FAILED, ("xid_79",), "GPU 0 fell off the bus\x1b[2J", 20.0)
OPEN = Evidence("breaker", Verdict.FAILED, ("server_error",), "", 20.0)


class Told:
    """A fleet of three, and what is told of it."""

    def __init__(self) -> None:
        self.now = 0.0
        self.fleet = Fleet(45.0)
        self.metrics = Metrics(lambda: self.fleet.views(self.now), lambda: 0)
        self.part = HealthEvents(self.fleet, self.metrics, lambda: self.now)
        self.declare(PoolsDeclared((pool(A, B, C),)))

    def declare(self, declared: PoolsDeclared) -> None:
        self.apply(declared)
        self.part.follow(parse(EXAMPLE, "x"), declared)

    def apply(self, *facts: FleetEvent) -> None:
        for fact in facts:
            for change in self.fleet.apply(fact, self.now):
                self.part.changed(change)

    def history(self, **asked: str) -> list[dict[str, object]]:
        events = self.part.pages()["/events"].content(asked)["events"]
        assert isinstance(events, list)
        return events

    def page(self) -> list[str]:
        return self.metrics.render().decode().splitlines()


def test_an_ejection_is_one_line_one_event_and_one_count(caplog: pytest.LogCaptureFixture) -> None:
    told = Told()
    told.now = 7.0
    with caplog.at_level(logging.INFO, "tidegate.health"):
        told.apply(EvidenceReported(A, XID), TimePassed(), TimePassed())
    (line,) = caplog.records
    assert (line.levelname, line.getMessage()) == ("WARNING", "endpoint ejected")
    (one,) = told.history()
    assert {key: value for key, value in one.items() if key != "at"} == {
        "pool": "default",
        "address": A,
        "event": "ejected",
        "was": "healthy",
        "was_seconds": 7.0,
        "reasons": ["xid_79"],
        "detail": "GPU 0 fell off the bus\N{REPLACEMENT CHARACTER}[2J",
    }
    page = told.page()
    counted = 'tidegate_endpoint_health_transitions_total{pool="default",reason="xid_79",status="ejected"} 1.0'
    assert counted in page
    assert f'tidegate_endpoint_health{{endpoint="{A}",pool="default",status="ejected"}} 1.0' in page
    assert f'tidegate_endpoint_health{{endpoint="{B}",pool="default",status="healthy"}} 1.0' in page
    assert f'tidegate_endpoint_share_ratio{{endpoint="{A}",pool="default"}} 0.0' in page
    assert 'tidegate_pool_panic{pool="default"} 0.0' in page


def test_panic_is_said_aloud_and_so_is_its_end(caplog: pytest.LogCaptureFixture) -> None:
    told = Told()
    with caplog.at_level(logging.INFO, "tidegate.health"):
        told.apply(EvidenceReported(A, OPEN), EvidenceReported(B, OPEN))
        assert 'tidegate_pool_panic{pool="default"} 1.0' in told.page()
        told.now = 30.0
        told.apply(TimePassed())
    lines = [(record.levelname, record.getMessage()) for record in caplog.records if "panic" in record.getMessage()]
    assert lines == [("ERROR", "pool panic"), ("INFO", "pool panic_over")]
    assert [one["event"] for one in told.history() if not one["address"]] == ["panic", "panic_over"]
    assert 'tidegate_pool_panic{pool="default"} 0.0' in told.page()


def test_the_history_is_bounded_and_can_be_asked_in_part() -> None:
    told = Told()
    for number in range(KEPT):
        told.now = number * 1000.0
        told.apply(EvidenceReported(A, OPEN))
        told.now += 900.0
        told.apply(TimePassed())
    assert len(told.history()) == KEPT
    assert told.history(address=B) == []
    assert told.history(address=A, pool="default", limit="3") == told.history()[-3:]
    assert told.history(limit="0") == []
    for limit in ("x", "-1", "1" * 50):
        with pytest.raises(UnanswerableError):
            told.history(limit=limit)


def test_a_pool_that_is_gone_has_no_series_left() -> None:
    told = Told()
    told.apply(EvidenceReported(A, XID))
    told.declare(PoolsDeclared((pool(C, name="other"),)))
    assert not [line for line in told.page() if "_health" in line and 'pool="default"' in line]


def test_an_endpoint_is_explained_with_every_word_said_of_it() -> None:
    told = Told()
    told.apply(EvidenceReported(A, Evidence("breaker", Verdict.SOUND)))
    told.now = 4.0
    told.apply(EvidenceReported(A, XID))
    told.now = 6.0
    found = told.part.pages()["/endpoint"].content({"address": A})
    expected = {"pool": "default", "status": "ejected", "reasons": ["xid_79"], "seconds": 2.0}
    assert {key: found[key] for key in expected} == expected
    assert (found["share"], found["ejections"]) == (0.0, 1)
    words = found["sources"]
    assert isinstance(words, list)
    assert [(word["source"], word["verdict"], word["age_seconds"], word["counts_for_seconds"]) for word in words] == [
        ("agent", "failed", 2.0, 18.0),
        ("breaker", "sound", 6.0, None),
    ]
    assert found["would_change"] == [
        "agent would have to say something else, or 18 s pass without a word of it",
        "it is held for 3 s more at least, and then gets its share over 30 s",
    ]


def test_there_is_nothing_to_say_of_an_endpoint_that_is_not_there() -> None:
    with pytest.raises(UnanswerableError) as raised:
        Told().part.pages()["/endpoint"].content({"address": "10.9.9.9:1"})
    assert raised.value.status == 404
