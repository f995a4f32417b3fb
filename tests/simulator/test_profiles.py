"""The profiles differ as the GPUs do."""

from dataclasses import replace

import pytest

from tidegate.simulator.profiles import PROFILES, Profile


def _decode_tokens_per_second(profile: Profile, batch: int, context: int) -> float:
    return batch / profile.step_seconds(0, batch, batch * context)


@pytest.mark.parametrize("batch", [1, 16, 32])
def test_an_h100_is_about_twice_an_a100_and_three_to_four_times_a_4090(batch: int) -> None:
    h100, a100, rtx4090 = (_decode_tokens_per_second(PROFILES[name], batch, 500) for name in PROFILES)
    assert 1.5 < h100 / a100 < 2.5
    assert 2.5 < h100 / rtx4090 < 4.5
    rates = [profile.prefill_tokens_per_second for profile in PROFILES.values()]
    assert (rates[0] / rates[1], rates[0] / rates[2]) == (2.0, 4.0)


def test_the_numbers_stay_below_the_roofline() -> None:
    weights, kv_per_token = 16.06e9, 131_072
    hardware = {"h100": (3.35e12, 989e12, 80e9), "a100": (2.04e12, 312e12, 80e9), "rtx4090": (1.01e12, 165e12, 24e9)}
    for name, (bandwidth, flops, memory) in hardware.items():
        profile = PROFILES[name]
        assert 0.6 < weights / bandwidth / profile.decode_step_seconds < 0.8
        assert 0.6 < kv_per_token / bandwidth / profile.context_token_seconds < 0.8
        assert 0.35 < profile.prefill_tokens_per_second * weights / flops < 0.65
        assert profile.kv_tokens * kv_per_token < 0.92 * memory - weights


def test_a_step_grows_with_prefill_batch_and_context() -> None:
    step = PROFILES["a100"].step_seconds
    assert step(0, 1, 100) < step(0, 2, 100) < step(0, 2, 10_000) < step(500, 2, 10_000)


@pytest.mark.parametrize(
    "change",
    [
        {"prefill_tokens_per_second": 0.0},
        {"sequence_seconds": -1.0},
        {"num_gpu_blocks": 1},
        {"max_num_seqs": 0},
        {"max_num_batched_tokens": 0},
    ],
    ids=str,
)
def test_a_profile_that_could_not_run_is_refused(change: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"must|needs"):
        replace(PROFILES["h100"], **change)  # type: ignore[arg-type]
