"""Models get back the names that clients know, whatever the pieces that an answer comes in."""

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extproc.restoring import Restored

ANSWER = b'data: {"id": "1", "model": "new", "choices": [{"delta": {"content": "\\"model\\": \\"new\\""}}]}\n\n'
EXPECTED = ANSWER.replace(b'"model": "new"', b'"model":"food"')


def passed(*pieces: bytes, engine: str = "new", asked: str = "food") -> bytes:
    restored = Restored(engine, asked)
    return b"".join(restored.feed(piece, end=False) for piece in pieces) + restored.feed(b"", end=True)


def test_the_member_alone_is_changed_and_no_text() -> None:
    assert passed(ANSWER) == EXPECTED
    assert passed(b'{"model":"newer"}') == b'{"model":"newer"}'
    assert passed(b'{"models":"new", "name": "new"}') == b'{"models":"new", "name": "new"}'


@pytest.mark.parametrize(
    "written", [b'{"model":"new"}', b'{"model": "new"}', b'{"model" : "new"}', b'{"model" :"new"}']
)
def test_it_is_known_however_it_is_spaced(written: bytes) -> None:
    assert json.loads(passed(written)) == {"model": "food"}


@given(st.integers(1, 5), st.lists(st.integers(0, 5 * len(ANSWER)), max_size=12))
def test_wherever_it_is_cut_the_answer_is_the_same(events: int, cuts: list[int]) -> None:
    text = ANSWER * events
    places = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    pieces = [text[begin:end] for begin, end in pairwise(places)]
    assert passed(*pieces) == EXPECTED * events


@given(st.lists(st.binary(max_size=20), max_size=8), st.text(min_size=1, max_size=8))
def test_nothing_is_lost_of_what_is_not_meant(pieces: list[bytes], name: str) -> None:
    whole = b"".join(pieces)
    if b'"model"' not in whole:
        assert passed(*pieces, engine=name) == whole


def test_an_event_that_is_whole_is_not_held_back() -> None:
    restored = Restored("new", "food")
    assert restored.feed(ANSWER, end=False) == EXPECTED
    assert restored.feed(b'{"mod', end=False) == b"{"
