import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import generate_latest
from prometheus_client.openmetrics import exposition as openmetrics

from tidegate.engines.exposition import Page, Sample, parse

WANTED = frozenset({"up", "vllm:n", "a_total"})


def one(line: str | bytes) -> Sample:
    page = parse(line, WANTED)
    assert not page.broken
    (sample,) = page.samples
    return sample


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("4.0", 4.0),
        ("4", 4.0),
        ("1.79e+09", 1.79e9),
        ("8.128902e+06", 8128902.0),
        ("-3", -3.0),
        (".5", 0.5),
        ("5.", 5.0),
        ("+Inf", math.inf),
        ("-Inf", -math.inf),
        ("Inf", math.inf),
        ("1e999", math.inf),
    ],
)
def test_values_are_read_in_every_form_that_the_format_allows(text: str, value: float) -> None:
    assert one(f"up {text}").value == value


def test_not_a_number_is_a_value() -> None:
    assert math.isnan(one("up NaN").value)


def test_names_with_colons_are_names() -> None:
    assert one('vllm:n{engine="0"} 3.0') == Sample("vllm:n", {"engine": "0"}, 3.0)


def test_the_order_of_labels_does_not_matter() -> None:
    assert one('up{a="1",b="2"} 1').labels == one('up{b="2",a="1"} 1').labels


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        (r"C:\\DIR", "C:\\DIR"),
        (r"say \"x\"", 'say "x"'),
        (r"two\nlines", "two\nlines"),
        (r"\\n", r"\n"),
        (r"\t", r"\t"),
        ("} 7", "} 7"),
        ('{a=\\"b\\",c=\\"d\\"} 9', '{a="b",c="d"} 9'),
        ("# no comment", "# no comment"),
        ("", ""),
        ("größe\u2028\x0b\x85", "größe\u2028\x0b\x85"),
    ],
)
def test_label_values_are_unescaped_and_may_hold_anything(written: str, meant: str) -> None:
    assert one(f'up{{l="{written}"}} 1') == Sample("up", {"l": meant}, 1.0)


@pytest.mark.parametrize(
    "line",
    [
        "up 1",
        "up 1\n",
        "up 1\r\n",
        "  up\t1  ",
        "up{} 1",
        "up {} 1",
        "up{}1",
        "up 1 1395066363000",
        "up 1 -62135596800.25",
        'up 1 # {trace_id="x"} 0.5 1520879607.789',
        "up 1 1395066363000 # {} 1",
    ],
)
def test_blanks_timestamps_exemplars_and_a_missing_last_newline_change_nothing(line: str) -> None:
    assert one(line) == Sample("up", {}, 1.0)


@pytest.mark.parametrize("line", ['up{a="1",} 1', 'up{ a = "1" } 1', 'up{"a"="1"} 1', 'up {a="1"} 1'])
def test_labels_are_read_in_every_form_that_the_format_allows(line: str) -> None:
    assert one(line) == Sample("up", {"a": "1"}, 1.0)


def test_names_that_only_begin_like_a_wanted_one_are_passed_over() -> None:
    page = parse('up_created 1.7e9\nupper 1\nvllm:n_bucket{le="1"} 4\na_total_count 2\n', WANTED)
    assert page == Page()


def test_a_family_without_samples_says_nothing() -> None:
    assert parse("# HELP up Up.\n# TYPE up gauge", WANTED) == Page()


@pytest.mark.parametrize(
    "line",
    [
        "up",
        "up ",
        "up{",
        'up{a="1"',
        'up{a="1} 1',
        'up{a="1\\"} 1',
        'up{a="1" b="2"} 1',
        'up{a="1",a="2"} 1',
        'up{,a="1"} 1',
        "up{a=1} 1",
        'up{1a="1"} 1',
        "up one",
        "up 1_000",
        "up 0x10",
        "up \u0661",
        "up 1 2 3",
        "up 1#",
        "up 1 soon",
    ],
)
def test_a_malformed_line_is_skipped_counted_and_held_against_its_name(line: str) -> None:
    page = parse(f"{line}\na_total 2\n", WANTED)
    assert page.samples == (Sample("a_total", {}, 2.0),)
    assert page.broken == {"up"}
    assert page.skipped == 1


def test_a_malformed_line_that_nobody_asked_for_is_nothing() -> None:
    assert parse('down{ 1\nup 1\nother{a="} x\n', WANTED) == Page(samples=(Sample("up", {}, 1.0),))


def test_a_series_that_comes_twice_counts_once() -> None:
    page = parse('up{a="1",b="2"} 4\nup{b="2",a="1"} 4.0\n', WANTED)
    assert len(page.samples) == 1
    assert not page.broken


@pytest.mark.parametrize("other", ["5", "NaN"])
def test_a_series_that_comes_twice_with_two_values_is_held_against_its_name(other: str) -> None:
    assert parse(f'up{{a="1"}} 4\nup{{a="1"}} {other}\n', WANTED).broken == {"up"}


def test_named_returns_the_samples_of_one_name() -> None:
    page = parse('up{a="1"} 4\na_total 1\nup{a="2"} 5\n', WANTED)
    assert [sample.value for sample in page.named("up")] == [4.0, 5.0]
    assert page.named("vllm:n") == ()


def test_a_page_with_too_many_lines_is_read_no_further_and_says_so() -> None:
    page = parse("other 1\n" * 9 + "up 1\nup 2", WANTED, max_lines=10)
    assert page.truncated
    assert page.samples == (Sample("up", {}, 1.0),)


def test_a_page_with_just_as_many_lines_as_allowed_is_whole() -> None:
    assert not parse("other 1\n" * 10, WANTED, max_lines=10).truncated


@pytest.mark.parametrize("line", ['up{{a="{}"}} 1', "up 1", "up {} {{"])
def test_a_page_with_too_many_wanted_lines_is_read_no_further_and_says_so(line: str) -> None:
    page = parse("\n".join(line.format(number) for number in range(6)), WANTED, max_samples=5)
    assert page.truncated
    assert len(page.samples) + page.skipped <= 5


def test_a_line_or_label_that_is_too_long_is_held_against_its_name() -> None:
    assert parse('up{a="12345"} 1', WANTED, max_label=4).broken == {"up"}
    assert parse('up{a="1234"} 1', WANTED, max_label=4).samples
    assert parse('up{a="12345"} 1', WANTED, max_line=14).broken == {"up"}
    assert parse('up{a="12345"} 1', WANTED, max_line=15).samples


def test_a_long_line_that_nobody_asked_for_is_no_harm() -> None:
    page = parse("# HELP up " + "x" * 500_000 + "\nup 1\n", WANTED)
    assert page == Page(samples=(Sample("up", {}, 1.0),))


@pytest.mark.parametrize(
    "text", ["<!doctype html>\nup 1\n", '{"up": 1}', "[]", "Not Found", "\n \n<html>", "\x00\x01", "404: gone"]
)
def test_what_does_not_begin_like_a_page_is_foreign(text: str) -> None:
    assert parse(text, WANTED).foreign


@pytest.mark.parametrize(
    "text", ["", "\n\n", "# HELP x y", "\n\nx 1", 'x{a="b"} 1', "x NaN", '{"x.y", a="b"} 1', '{"x.y"} 1']
)
def test_what_begins_like_a_page_is_not_foreign(text: str) -> None:
    assert not parse(text, WANTED).foreign


def test_bytes_that_are_no_utf8_do_not_harm_the_rest() -> None:
    page = parse(b'other{a="\xff"} 1\nup{a="\xff"} 1\n', WANTED)
    assert page.samples == (Sample("up", {"a": "\ufffd"}, 1.0),)


_FRAGMENTS = st.sampled_from(["up", "vllm:n", "{", "}", '"', "\\", ",", "=", " ", "\n", "a", "1", ".", "NaN", "#", "e"])


@given(st.lists(_FRAGMENTS, max_size=40).map("".join) | st.text() | st.binary())
def test_nothing_raises(text: str | bytes) -> None:
    page = parse(text, WANTED)
    assert all(sample.name in WANTED for sample in page.samples)


class _Families:
    """A collector of families that were made elsewhere."""

    def __init__(self, families: list[Metric]) -> None:
        self._families = families

    def collect(self) -> list[Metric]:
        return self._families


_LABEL_VALUES = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
_VALUES = st.floats(allow_nan=False)
_SERIES = st.dictionaries(st.tuples(_LABEL_VALUES, _LABEL_VALUES), _VALUES, max_size=5)


@given(_SERIES, _SERIES)
def test_what_prometheus_client_writes_is_read_back(
    gauges: dict[tuple[str, str], float], counters: dict[tuple[str, str], float]
) -> None:
    gauge = GaugeMetricFamily("vllm:n", 'Two\nlines \\ and a "quote"', labels=["engine", "model_name"])
    counter = CounterMetricFamily("a", "Counted.", labels=["engine", "model_name"], created=1.7e9)
    histogram = HistogramMetricFamily("up", "Not a gauge.", buckets=[("1.0", 2), ("+Inf", 3)], sum_value=4)
    for labels, value in gauges.items():
        gauge.add_metric(labels, value)
    for labels, value in counters.items():
        counter.add_metric(labels, value, created=1.7e9)
    registry = CollectorRegistry()
    registry.register(_Families([gauge, counter, histogram]))

    page = parse(generate_latest(registry), WANTED)

    assert not page.broken
    assert {(*sample.labels.values(), sample.name): sample.value for sample in page.samples} == (
        {(engine, model, "vllm:n"): value for (engine, model), value in gauges.items()}
        | {(engine, model, "a_total"): value for (engine, model), value in counters.items()}
    )


def test_openmetrics_pages_are_read_too() -> None:
    counter = CounterMetricFamily("a", "Counted.", labels=["engine"])
    counter.add_metric(["0"], 7.0, timestamp=12.5)
    registry = CollectorRegistry()
    registry.register(_Families([counter]))
    text: bytes = openmetrics.generate_latest(registry)  # type: ignore[no-untyped-call]
    assert text.endswith(b"# EOF\n")
    assert parse(text, WANTED).samples == (Sample("a_total", {"engine": "0"}, 7.0),)
