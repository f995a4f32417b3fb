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


def test_a_workload_is_made_smaller_for_engines_that_are_slow() -> None:
    workload = bench.bounded(Workload("w", [Arrival(0.0, 1_000, 300), Arrival(1.0, 20, 4)]), 0.1)
    assert [(one.prompt_tokens, one.output_tokens) for one in workload.arrivals] == [(100, 30), (2, 1)]


def test_engines_at_half_their_speed_take_twice_as_long() -> None:
    profile = PROFILES["h100"]
    assert bench.slowed(profile, 0.5).step_seconds(100, 10, 1_000) == pytest.approx(
        2 * profile.step_seconds(100, 10, 1_000)
    )


def test_a_prediction_covers_every_request() -> None:
    workload = bench.bounded(synthetic.make("poisson", 50, 5.0, 1))
    predicted = bench.simulated([PROFILES["h100"], PROFILES["rtx4090"]], workload, "least_tokens", 1)
    assert len(predicted) == 50
    assert all(0 < one.ttft <= one.end_to_end and one.tpot >= 0 for one in predicted)


def test_predicted_and_observed_stand_side_by_side() -> None:
    predicted = [bench.Observed(0.1, 0.01, 1.0, "a"), bench.Observed(0.3, 0.03, 3.0, "b")]
    observed = [bench.Observed(0.2, 0.02, 2.0, "a")]
    lines = list(bench.compared(predicted, observed))
    assert len(lines) == 12
    assert lines[0].split() == ["TTFT", "mean", "predicted", "200.0", "ms", "observed", "200.0", "ms", "error", "+0%"]
    assert list(bench.compared(predicted, [])) == []


def test_what_each_kind_of_engines_is_asked_can_be_changed() -> None:
    assert (bench._asked([]).fleet, bench._asked([]).rate) == ("h100,h100,rtx4090,rtx4090", 6.0)
    asked = bench._asked(["--engines", "llamacpp", "--rate", "2"])
    assert (asked.fleet, asked.rate, asked.scale) == ("small,large", 2.0, 0.1)


def test_policies_that_are_predicted_to_be_clearly_apart_must_stand_the_same_way_live() -> None:
    lines, right = bench.agreement({"a": (1.0, 1.1), "b": (1.1, 1.0), "c": (2.0, 1.5)})
    assert right, "a and b are too near for it to matter"
    assert lines[:3] == [
        "predicted by mean time to the last token: a 1.00 s, b 1.10 s, c 2.00 s",
        "observed by mean time to the last token: b 1.00 s, a 1.10 s, c 1.50 s",
        "2 of 2 pairs that are predicted to be 1.25 times apart stand that way live",
    ]
    lines, right = bench.agreement({"a": (1.0, 1.6), "b": (1.1, 1.0), "c": (2.0, 1.5)})
    assert not right
    assert lines[2:] == [
        "1 of 2 pairs that are predicted to be 1.25 times apart stand that way live",
        "  not so: a before c",
    ]
