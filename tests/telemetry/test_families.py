import pytest
from prometheus_client import CollectorRegistry, generate_latest

from tidegate.telemetry.families import FastCounter, FastHistogram


def test_a_series_is_the_same_however_often_and_in_which_way_it_is_asked_for() -> None:
    counter = FastCounter("a", "help", ["x", "y"], registry=None)
    first = counter.labels("1", "2")
    assert counter.labels("1", "2") is counter.labels(y="2", x="1") is counter.labels(1, 2) is first
    histogram = FastHistogram("b", "help", ["x"], registry=None)
    assert histogram.labels("1") is histogram.labels("1") is not histogram.labels("2")


def test_a_series_that_was_removed_begins_anew() -> None:
    registry = CollectorRegistry()
    counter = FastCounter("a", "help", ["x"], registry=registry)
    counter.labels("1").inc(5)
    counter.remove_by_labels({"x": "1"})
    counter.labels("1").inc()
    assert b'a_total{x="1"} 1.0' in generate_latest(registry)


def test_what_the_library_refuses_is_refused() -> None:
    counter = FastCounter("a", "help", ["x"], registry=None)
    plain = FastCounter("c", "help", registry=None)
    for family, values in ((counter, ("1", "2")), (counter, ()), (plain, ("1",)), (plain, ())):
        with pytest.raises(ValueError, match=r"label"):
            family.labels(*values)
    with pytest.raises(ValueError, match="already has labels"):
        counter.labels("1").labels("1")
