"""The validation of the simulator, as far as it goes without a live stack."""

import pytest

from bench import validate_simulator as bench
from tidegate.simulator.profiles import PROFILES
from tidegate.simulator.prompts import plain_prompt
from tidegate.simulator.virtual import synthetic
from tidegate.simulator.virtual.workload import Arrival, Workload


@pytest.mark.parametrize("tokens", [1, 4, 5, 1_000])
def test_a_prompt_has_so_many_of_the_engines_tokens_and_a_beginning_of_its_own(tokens: int) -> None:
    text = bench.prompt(7, tokens)
    assert len(plain_prompt(text)) == tokens * bench.TOKEN_BYTES
    assert text[:4] != bench.prompt(8, tokens)[:4]


def test_what_is_asked_for_live_fits_the_engines_and_names_its_length() -> None:
    workload = bench.bounded(Workload("w", [Arrival(0.0, 90_000, 9_000), Arrival(1.0, 5, 6, (), 0, "s")]))
    assert [(one.prompt_tokens, one.output_tokens, one.max_tokens) for one in workload.arrivals] == [
        (20_000, 2_000, 2_000),
        (5, 6, 6),
    ]


def test_engines_at_half_their_speed_take_twice_as_long() -> None:
    profile = PROFILES["h100"]
    assert bench.slowed(profile, 0.5).step_seconds(100, 10, 1_000) == pytest.approx(
        2 * profile.step_seconds(100, 10, 1_000)
    )


def test_a_prediction_covers_every_request() -> None:
    workload = bench.bounded(synthetic.make("poisson", 50, 5.0, 1))
    predicted = bench.simulated(["h100", "rtx4090"], workload, "least_tokens", 0.5, 1)
    assert len(predicted) == 50
    assert all(0 < one.ttft <= one.end_to_end and one.tpot >= 0 for one in predicted)


def test_predicted_and_observed_stand_side_by_side() -> None:
    predicted = [bench.Observed(0.1, 0.01, 1.0, "a"), bench.Observed(0.3, 0.03, 3.0, "b")]
    observed = [bench.Observed(0.2, 0.02, 2.0, "a")]
    lines = list(bench.compared(predicted, observed))
    assert len(lines) == 12
    assert lines[0].split() == ["TTFT", "mean", "predicted", "200.0", "ms", "observed", "200.0", "ms", "1.00"]
    assert list(bench.compared(predicted, [])) == []
