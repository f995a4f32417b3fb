"""The measurement of what telling Envoys costs, with few of them."""

import pytest

from bench.xds import VARIANTS, measure


@pytest.mark.parametrize("variant", VARIANTS)
async def test_each_step_reaches_every_client(variant: str) -> None:
    told = await measure(150, 2, variant)

    steps = told["steps"]
    assert isinstance(steps, dict)
    assert [*steps] == ["connect", "weight", "all"]
    assert all(step["cpu"] > 0 and step["seconds"] > 0 for step in steps.values())
    # One pool of a hundred changes, or both do; the whole state is told again where there are no increments.
    ratio = steps["all"]["bytes"] / steps["weight"]["bytes"]
    assert 1.2 < ratio < 2 if variant == "delta" else 0.9 < ratio < 1.1
