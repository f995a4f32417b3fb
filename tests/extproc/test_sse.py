"""Server-sent events: whatever the chunks, the same events, and every byte in one piece."""

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extproc.sse import Event, Parser, Piece


def parse(chunks: Iterable[bytes], max_event_bytes: int = 1 << 20) -> tuple[list[Event], list[Piece], Parser]:
    parser = Parser(max_event_bytes)
    pieces = [piece for chunk in chunks for piece in parser.feed(chunk)]
    pieces += parser.end()
    return [piece.event for piece in pieces if piece.event is not None], pieces, parser


def events(*chunks: bytes) -> list[tuple[bytes, bytes]]:
    return [(event.name, event.data) for event in parse(chunks)[0]]


def without(pieces: list[Piece], data: bytes) -> bytes:
    kept, passing = b"", True
    for piece in pieces:
        if not piece.continues:
            passing = piece.event is None or piece.event.data != data
        kept += piece.raw if passing else b""
    return kept


LINES = [
    b"data: one",
    b"data:two",
    b"data",
    b"data:  x",
    b"event: error",
    b"event:m",
    b": ping",
    b":",
    b"id: 7",
    b"retry: 9",
    b"nonsense",
    b"",
    b"",
    b"",
    b"data: usage",
    b"data: " + b"x" * 40,
    b":" + b"c" * 40,
    "data: ø€😀".encode(),
]
ENDS = [b"\n", b"\r\n", b"\r"]


@st.composite
def streams(draw: st.DrawFn) -> bytes:
    lines = draw(st.lists(st.tuples(st.sampled_from(LINES), st.sampled_from(ENDS)), max_size=12))
    head = draw(st.sampled_from([b"", b"\xef\xbb\xbf", b"\xef\xbb"]))
    tail = draw(st.sampled_from([b"", b"data: usage", b"data: [DO", b":", b"\r"]))
    return head + b"".join(line + end for line, end in lines) + tail


@st.composite
def cut(draw: st.DrawFn, stream: st.SearchStrategy[bytes]) -> tuple[bytes, list[bytes]]:
    whole = draw(stream)
    places = sorted(draw(st.lists(st.integers(0, len(whole)), max_size=8)))
    return whole, [whole[a:b] for a, b in zip([0, *places], [*places, len(whole)], strict=True)]


@given(cut(streams()))
def test_any_chunks_give_the_same_events_and_give_out_every_byte(both: tuple[bytes, list[bytes]]) -> None:
    whole, chunks = both
    at_once, pieces_at_once, _ = parse([whole], 32)
    in_chunks, pieces, _ = parse(chunks, 32)
    assert in_chunks == at_once
    assert b"".join(piece.raw for piece in pieces) == whole
    assert without(pieces, b"usage") == without(pieces_at_once, b"usage")
    assert parse([whole[n : n + 1] for n in range(len(whole))], 32)[0] == at_once


@given(cut(st.binary(max_size=200)))
def test_any_bytes_at_all_come_out_again(both: tuple[bytes, list[bytes]]) -> None:
    whole, chunks = both
    found, pieces, parser = parse(chunks, 16)
    assert b"".join(piece.raw for piece in pieces) == whole
    assert found == parse([whole], 16)[0]
    assert parser.passed_over == parse([whole], 16)[2].passed_over


@pytest.mark.parametrize("end", ENDS)
def test_lines_end_in_lf_cr_or_crlf(end: bytes) -> None:
    stream = end.join([b"event: e", b"data: 1", b"data: 2", b"", b"data:3", b"", b""])
    for place in range(len(stream) + 1):
        assert events(stream[:place], stream[place:]) == [(b"e", b"1\n2"), (b"", b"3")]


def test_an_event_comes_out_with_the_byte_that_completes_it() -> None:
    parser = Parser()
    assert parser.feed(b"data: 1\r\n\r") == [Piece(b"data: 1\r\n\r", Event(b"", b"1"))]
    assert parser.feed(b"\ndata: 2\n") == [Piece(b"\n", continues=True)]
    assert parser.feed(b"\n") == [Piece(b"data: 2\n\n", Event(b"", b"2"))]


def test_a_byte_order_mark_is_no_part_of_the_first_line() -> None:
    assert events(b"\xef\xbb\xbfdata: 1\n\n") == [(b"", b"1")]
    assert events(b"\xef", b"\xbb", b"\xbf", b"data: 1\n\n") == [(b"", b"1")]
    assert events(b"\n\xef\xbb\xbfdata: 1\n\n") == []


def test_a_comment_is_given_out_at_once_and_is_no_part_of_the_event_behind_it() -> None:
    parser = Parser()
    assert parser.feed(b": pi") == [Piece(b": pi")]
    assert parser.feed(b"ng\n") == [Piece(b"ng\n")]
    assert parser.feed(b"data: 1\n\n") == [Piece(b"data: 1\n\n", Event(b"", b"1"))]


def test_a_flood_of_comments_leaves_nothing_behind() -> None:
    parser = Parser()
    for _ in range(1_000):
        assert parser.feed(b": keep-alive\n\n" * 10 + b":" + b"x" * 1_000)
        assert len(parser._held) == 0
        assert len(parser._line) <= 1
        parser.feed(b"\n")
    assert parser.feed(b"data: 1\n\n")[-1].event == Event(b"", b"1")


def test_a_missing_last_empty_line_loses_no_event() -> None:
    assert events(b"data: 1\n\ndata: 2\n") == [(b"", b"1"), (b"", b"2")]
    assert events(b"data: 1\n\ndata: 2") == [(b"", b"1"), (b"", b"2")]


def test_a_line_of_ten_megabytes_is_passed_over_without_being_kept() -> None:
    parser = Parser(1 << 16)
    given_out = 0
    for _ in range(160):
        given_out += sum(len(piece.raw) for piece in parser.feed(b"data: " + b"x" * 65_530))
        assert len(parser._held) + len(parser._line) <= 1 << 17
    assert given_out == 160 * 65_536
    assert [piece.event for piece in parser.feed(b"\n\ndata: after\n\n")] == [None, None, Event(b"", b"after")]
    assert parser.passed_over == 1


def test_an_event_without_data_is_none() -> None:
    assert events(b"event: ping\n\nid: 1\n\ndata\n\n") == [(b"", b"")]
