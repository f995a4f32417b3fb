"""Histograms, and the bounds that depend on the model."""

import pytest

from tidegate.simulator.stats import Counters, Histogram


def test_a_bound_includes_its_own_value_and_the_last_bucket_takes_the_rest() -> None:
    histogram = Histogram((1.0, 2.0))
    for value in (0.5, 1.0, 1.5, 2.0, 99.0):
        histogram.observe(value)
    assert histogram.counts == [2, 2, 1]
    assert histogram.count == 5
    assert histogram.sum == pytest.approx(104.0)


def test_the_bounds_for_lengths_end_below_the_longest_request() -> None:
    bounds = Counters(max_model_len=2048).request_prompt_tokens.bounds
    assert bounds == (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0)
