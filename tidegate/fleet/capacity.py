"""How many requests an endpoint can serve, and what weight that is among the others of its pool.

Envoy's own balancer needs weights for what no decision names: requests whose picks have all failed. They follow the
learned speeds, in steps, so that a speed that wavers does not change the table again and again.
"""

import math
from collections.abc import Mapping, Sequence

from tidegate.fleet.gpu import Pace

MOST_WEIGHT = 100
STEP = 1.25
"""Weights are powers of this: a quarter is the least that is worth telling."""

KEEP = 0.8
"""How many steps a weight must be off before it is given up: more than half, or it would flip at the border."""

BATCH = 64.0
"""A batch that engines run at under load, where the KV cache has room for it."""


def capacity(pace: Pace, prompt_tokens: float, output_tokens: float) -> float:
    """Return the requests a second that an endpoint of ``pace`` can serve when it is busy.

    A request takes its prefill, and its share of the steps of a batch as large as fits.
    """
    each = max(1.0, prompt_tokens + output_tokens)
    batch = max(1.0, min(BATCH, pace.max_batch, pace.kv_tokens / each))
    step = pace.step(batch, batch * (prompt_tokens + output_tokens / 2))
    seconds = max(1.0, prompt_tokens) * pace.prefill_seconds + output_tokens * step / batch
    return 1.0 / seconds


def weights(capacities: Sequence[tuple[str, float]], before: Mapping[str, int]) -> dict[str, int]:
    """Return a weight for each address, 1 to ``MOST_WEIGHT``, in proportion to its capacity.

    Args:
        capacities: addresses of one pool with requests a second, in any unit; the largest gets ``MOST_WEIGHT``.
        before: the weights last told, which stay where they are still about right.
    """
    most = max((each for _, each in capacities), default=0.0)
    result = {}
    for address, each in capacities:
        steps = math.log(max(each, most / MOST_WEIGHT) / most, STEP) if most > 0 else 0.0
        told = before.get(address)
        if told is not None and abs(math.log(told / MOST_WEIGHT, STEP) - steps) <= KEEP:
            result[address] = told
        else:
            result[address] = max(1, round(MOST_WEIGHT * STEP ** round(steps)))
    return result
