from array import array
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.load import Result
from bench.report import Figures, as_json, figures, medians, percentile, ratios, table


def result(latencies: list[float], seconds: float = 2.0, **failures: int) -> Result:
    return Result(array("d", latencies), Counter({200: len(latencies)}), Counter(failures), seconds)


def made(requests_per_second: float, envoy: float, tidegate: float | None = None) -> Figures:
    return Figures(requests_per_second, 1.0, 2.0, envoy, tidegate, envoy + (tidegate or 0), 5.0, 6.0, 0)


def test_percentiles_are_values_that_were_seen() -> None:
    values = [float(value) for value in range(100, 0, -1)]
    assert percentile(values, 50) == 50
    assert percentile(values, 99) == 99
    assert percentile(values, 100) == 100
    assert percentile([7.0], 1) == 7
    assert percentile([], 50) is None


@given(st.lists(st.floats(0, 1e6), min_size=1), st.floats(0.1, 100))
def test_at_least_the_share_asked_for_is_not_above_a_percentile(values: list[float], percent: float) -> None:
    found = percentile(values, percent)
    assert found is not None
    assert sum(value <= found for value in values) >= percent / 100 * len(values)
    assert sum(value < found for value in values) < percent / 100 * len(values) + 1e-9


def test_cpu_is_given_per_answered_request_in_microseconds() -> None:
    cpu = {"envoy": 0.2, "control": 0.4, "engine": 0.1, "load": 0.05}
    found = figures(result([0.001] * 1000, seconds=2.0), cpu)
    assert found.requests_per_second == 500
    assert (found.p50_ms, found.p99_ms) == (1.0, 1.0)
    assert found.envoy_us == pytest.approx(200)
    assert found.control_us == pytest.approx(400)
    assert found.proxy_us == pytest.approx(600)
    assert found.engine_us == pytest.approx(100)
    assert found.load_us == pytest.approx(50)


def test_a_process_that_is_not_there_costs_nothing_known_rather_than_zero() -> None:
    found = figures(result([0.001] * 10), {"envoy": 0.2})
    assert found.control_us is None
    assert found.proxy_us == found.envoy_us


def test_a_round_without_an_answer_has_no_times_and_says_what_failed() -> None:
    found = figures(result([], seconds=0.0, lost=3), {"envoy": 0.2})
    assert found.requests_per_second == 0
    assert found.p50_ms is found.p99_ms is found.envoy_us is None
    assert found.not_answered == 3


def test_the_median_of_the_rounds_is_taken_figure_by_figure() -> None:
    rounds = [made(10, 3), made(30, 1), made(20, 9)]
    middle = medians(rounds)
    assert (middle.requests_per_second, middle.envoy_us) == (20, 3)
    assert middle.control_us is None


def test_requests_not_answered_are_summed_over_the_rounds() -> None:
    rounds = [figures(result([0.1], lost=2), {}), figures(result([0.1], lost=5), {})]
    assert medians(rounds).not_answered == 7


def test_ratios_are_the_second_side_over_the_first() -> None:
    found = ratios(made(1000, 50), made(250, 60, 40))
    assert found["requests_per_second"] == 0.25
    assert found["envoy_us"] == pytest.approx(1.2)
    assert found["proxy_us"] == pytest.approx(2.0)
    assert found["control_us"] is None


def test_a_ratio_to_nothing_is_not_given() -> None:
    assert ratios(made(0, 1), made(5, 1))["requests_per_second"] is None


def test_the_table_has_each_round_the_medians_and_the_ratio() -> None:
    rounds = [{"plain": made(1000, 50), "tidegate": made(500, 60, 140)} for _ in range(3)]
    loads = [{"plain": 0.5, "tidegate": 1.25} for _ in range(3)]
    lines = table(rounds, loads).splitlines()
    assert len(lines) == 1 + 6 + 2 + 1
    assert lines[0].split()[:3] == ["round", "side", "requests/s"]
    assert lines[2].split()[:2] == ["1", "tidegate"]
    assert lines[2].endswith("1.25")
    assert lines[-3].split()[:3] == ["median", "plain", "1000"]
    assert lines[-1].split()[:3] == ["ratio", "tidegate/plain", "0.50"]
    assert len({len(line.split()) for line in (lines[1], lines[3])}) == 1


def test_the_json_says_the_same_as_the_table() -> None:
    rounds = [{"plain": made(1000, 50), "tidegate": made(500, 60, 140)}]
    found = as_json(rounds, [{"plain": 0.5, "tidegate": 1.25}])
    assert found["rounds"][0]["tidegate"]["load_average"] == 1.25
    assert found["medians"]["plain"]["control_us"] is None
    assert found["ratios"]["tidegate/plain"]["proxy_us"] == 4.0
