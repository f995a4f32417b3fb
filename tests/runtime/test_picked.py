"""The endpoint picker's account: reservations, and the records of requests."""

from dataclasses import replace

import pytest

from extproc.answer import Answer
from extproc.picker_gateway import Picked
from extproc.usage import Usage
from tests.configurations import EVERY_KEY, parsed
from tidegate.fleet.events import FleetEvent, RequestEnded, RequestProgressed, RequestReserved
from tidegate.fleet.evidence import Ending
from tidegate.fleet.ledger import Reservation
from tidegate.runtime.picked import PickedRequests
from tidegate.scheduling.dispatch import Decision
from tidegate.scheduling.request import InferenceRequest
from tidegate.telemetry.outcome import Outcome
from tidegate.telemetry.record import RequestRecord
from tidegate.tokens.count import CountSource, TokenCount

A, B = "10.0.0.1:8000", "10.0.0.2:8000"
RESERVATION = Reservation("r1", "default", A, 9, 100, 0.0)
DECISION = Decision("default", "random", (A, B), RESERVATION)
REQUEST = InferenceRequest("r1", "chat_completions", "m", TokenCount(9, CountSource.EXACT, 8), stream=True)


def answer(body: bytes = b'{"usage": {"prompt_tokens": 7, "completion_tokens": 3}}') -> Answer:
    read = Answer("application/json")
    read.feed(body, 1.0)
    read.end(2.0)
    return read


PICKED = Picked(REQUEST, DECISION, Usage.CHAT_COMPLETIONS, "abc", 200, A, True, 2.0, 1.0, answer())


class Account:
    def __init__(self) -> None:
        self.facts = list[FleetEvent]()
        self.records = list[RequestRecord]()
        self.picked = PickedRequests(self.facts.append, self.records.append)


def test_an_end_releases_the_reservation_and_is_counted() -> None:
    account = Account()
    account.picked.sent("r1")
    account.picked.ended(PICKED)
    assert account.facts == [RequestEnded("r1", 3, ending=Ending.SERVED)]
    (record,) = account.records
    assert (record.reservation, record.request_id, record.pool, record.model) == ("r1", "abc", "default", "m")
    assert (record.served, record.named, record.attempts, record.outcome) == (A, A, 1, Outcome.OK)
    assert (record.usage.prompt_tokens, record.usage.completion_tokens) == (7, 3)
    assert (record.duration_seconds, record.ttft_seconds, record.uncorrected_prompt_tokens) == (2.0, 1.0, 8)
    account.picked.renew()
    assert len(account.facts) == 1


@pytest.mark.parametrize(
    ("change", "outcome", "ending"),
    [
        ({"status": 0, "answer": None}, Outcome.UNKNOWN, None),
        ({"whole": False}, Outcome.UNKNOWN, None),
        ({"status": 500}, Outcome.UPSTREAM_ERROR, Ending.SERVER_ERROR),
        ({"status": 503}, Outcome.UPSTREAM_ERROR, Ending.BUSY),
        ({"status": 429}, Outcome.UPSTREAM_ERROR, Ending.BUSY),
        ({"status": 404}, Outcome.CLIENT_ERROR, Ending.NEUTRAL),
        ({"answer": None}, Outcome.OK, Ending.SERVED),
        ({"answer": answer(b'{"error": {"message": "x"}}')}, Outcome.UPSTREAM_ERROR, Ending.BROKEN_ANSWER),
        ({"status": 400, "answer": answer(b'{"error": {"message": "x"}}')}, Outcome.CLIENT_ERROR, Ending.NEUTRAL),
    ],
)
def test_the_outcome_is_what_the_stream_tells(
    change: dict[str, object], outcome: Outcome, ending: Ending | None
) -> None:
    account = Account()
    account.picked.ended(replace(PICKED, **change))  # type: ignore[arg-type]
    assert account.records[0].outcome is outcome
    (fact,) = account.facts
    assert isinstance(fact, RequestEnded)
    assert fact.ending is ending


def test_what_the_gateway_does_not_tell_stays_unknown() -> None:
    account = Account()
    account.picked.ended(replace(PICKED, served="", whole=False, seconds=None, first_token_seconds=None, answer=None))
    (record,) = account.records
    assert (record.served, record.duration_seconds, record.ttft_seconds) == (None, None, None)
    assert (record.usage.prompt_tokens, record.usage.completion_tokens) == (None, None)
    assert account.facts == [RequestEnded("r1", None)]


def test_what_is_with_the_gateway_is_kept_alive_until_it_ends() -> None:
    account = Account()
    account.picked.sent("r1")
    account.picked.renew()
    account.picked.renew()
    assert account.facts == [RequestProgressed("r1")] * 2


def test_a_request_counts_where_it_is_served() -> None:
    account = Account()
    account.picked.sent("r1")
    account.picked.served_by(DECISION, B)
    assert account.facts == [RequestEnded("r1"), RequestReserved(RESERVATION._replace(address=B))]
    account.facts.clear()
    account.picked.ended(replace(PICKED, served=B))
    account.picked.served_by(DECISION, B)
    assert account.facts == [RequestEnded("r1", 3, ending=Ending.SERVED)]


def test_bodies_are_held_up_to_the_limit() -> None:
    account = Account()
    account.picked.configure(parsed(EVERY_KEY))
    assert account.picked.hold(10_000_000)
    assert not account.picked.hold(1)
    assert account.picked.hold(-1)
    assert account.picked.settings.obey_tests
    assert account.picked.settings.max_body_bytes == 1_000_000
    assert account.picked.settings.decision_seconds == 2
