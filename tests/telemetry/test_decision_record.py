"""A decision as a line of JSON."""

import contextlib
import json
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.scheduling.ask import A, B, ask, candidate, candidates
from tidegate.fleet.view import EndpointView
from tidegate.scheduling import pickers
from tidegate.scheduling.explain import Case, explain
from tidegate.scheduling.policy import Policy
from tidegate.telemetry.decision_record import MalformedRecordError, decode, encode


@settings(max_examples=60, deadline=None)
@given(
    candidates(),
    st.sampled_from(pickers.names()),
    st.lists(st.floats(0.0, 1.0, exclude_max=True), max_size=5).map(tuple),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=5),
)
def test_what_was_written_is_read_again(
    offered: list[EndpointView], picker: str, draws: tuple[float, ...], model: str
) -> None:
    policy = Policy(picker, 2, ("fits",), (("queue", 1.5),) if picker == "weighted_scores" else ())
    case = Case(ask("q7", model=model, session="s"), policy, 99, tuple(offered), draws, (A, B))
    line = encode(case, 1.5)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert decode(line) == case
    assert explain(decode(line), pickers.make(picker)) == explain(case, pickers.make(picker))


def test_no_part_of_the_prompt_is_written() -> None:
    case = Case(ask(prefix=(0xDEADBEEF, 77)), Policy("random"), 1, (candidate(A, cached=16),), (0.5,), (A,))
    record = json.loads(encode(case, 1.5))
    assert record["request"]["prefix"] == []
    assert record["candidates"][0]["cached_tokens"] == 16


def test_fields_of_a_later_release_are_passed_over_and_those_an_earlier_one_lacks_are_unknown() -> None:
    case = Case(ask(), Policy("random"), 1, (candidate(A),), (), (A,))
    record = json.loads(encode(case, 1.5))
    record["candidates"][0]["colour"] = "red"
    record["request"]["mood"] = "good"
    record["weather"] = "fine"
    del record["candidates"][0]["pace"]
    assert decode(json.dumps(record).encode()) == case


@pytest.mark.parametrize(
    "line", [b"", b"{}", b"[]", b"5", b"nonsense", b'{"version":2}', b'{"version":1}', b'{"version":1,"request":5}']
)
def test_what_is_no_record_is_an_error(line: bytes) -> None:
    with pytest.raises(MalformedRecordError):
        decode(line)


@given(st.recursive(st.none() | st.integers() | st.text(max_size=3), lambda inner: st.lists(inner, max_size=3)))
def test_no_field_does_anything_worse(value: object) -> None:
    case = Case(ask(), Policy("random"), 1, (candidate(A),), (), (A,))
    record = json.loads(encode(case, 1.5))
    key = random.Random(repr(value)).choice(sorted(record))
    for changed in ({**record, key: value}, {**record, "candidates": [{**record["candidates"][0], "adapters": value}]}):
        with contextlib.suppress(MalformedRecordError):
            decode(json.dumps(changed).encode())
