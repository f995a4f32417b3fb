"""The load of an endpoint: what its engine reported, less what is ours."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.fleet.load import EngineReport, MeanTokens, foreign_requests, plausible

GAUGE = st.none() | st.floats() | st.integers(-5, 10**9).map(float)


def test_requests_of_others_are_those_reported_beyond_our_own() -> None:
    assert foreign_requests(EngineReport(running=8, waiting=3), own_at_report=4) == 7


def test_an_engine_that_reports_fewer_than_we_sent_has_none_of_others() -> None:
    assert foreign_requests(EngineReport(running=1, waiting=0), own_at_report=4) == 0


@pytest.mark.parametrize("report", [EngineReport(running=6), EngineReport(waiting=6)])
def test_one_gauge_of_the_two_is_better_than_none(report: EngineReport) -> None:
    assert foreign_requests(report, own_at_report=2) == 4


def test_an_engine_that_does_not_say_has_an_unknown_number_of_others_and_not_zero() -> None:
    assert foreign_requests(EngineReport(kv_usage=0.5), own_at_report=0) is None


@pytest.mark.parametrize("nonsense", [-1.0, math.nan, math.inf, -math.inf])
def test_a_value_that_no_gauge_can_mean_is_unknown(nonsense: float) -> None:
    report = plausible(EngineReport(running=nonsense, waiting=2.0, kv_usage=nonsense))
    assert report == EngineReport(running=None, waiting=2.0, kv_usage=None)


def test_plausible_values_stay_as_they_are() -> None:
    report = EngineReport(1.0, 0.0, 0.97, 4e6, 1e12, 1e11)
    assert plausible(report) == report


@given(st.builds(EngineReport, GAUGE, GAUGE, GAUGE, GAUGE, GAUGE, GAUGE), st.integers(0, 10**6))
def test_whatever_an_engine_says_the_load_of_others_is_a_number_or_unknown(report: EngineReport, own: int) -> None:
    foreign = foreign_requests(plausible(report), own)
    assert foreign is None or 0 <= foreign <= 2e308


def test_a_mean_starts_at_its_prior() -> None:
    assert MeanTokens(1000.0).value == 1000.0


def test_a_mean_moves_towards_what_is_observed_by_its_weight() -> None:
    mean = MeanTokens(1000.0, weight=0.1)
    mean.observe(2000.0)
    assert mean.value == pytest.approx(1100.0)


def test_a_mean_forgets_its_prior() -> None:
    mean = MeanTokens(1000.0)
    for _ in range(500):
        mean.observe(40.0)
    assert mean.value == pytest.approx(40.0, rel=1e-6)


@given(st.lists(st.integers(0, 10**7)), st.floats(0.0, 1.0))
def test_a_mean_stays_within_what_it_saw(observed: list[int], weight: float) -> None:
    mean = MeanTokens(1000.0, weight)
    for tokens in observed:
        mean.observe(tokens)
    seen = [1000.0, *observed]
    assert min(seen) - 1e-6 <= mean.value <= max(seen) + 1e-6
