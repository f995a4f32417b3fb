"""Policies live, through Envoy with simulated engines, and under the virtual clock: they stand in the same order.

``bench.validate_simulator`` compares more of them, by figures; here only those that are far apart.
"""

import pytest

from bench import validate_simulator as bench
from tidegate.simulator.virtual import synthetic

FLEET = ("h100", "rtx4090", "rtx4090")
CLEAR = 1.5
POLICIES = ("round_robin", "predicted_latency")


@pytest.mark.timeout(300)
def test_policies_that_the_simulator_holds_far_apart_stand_in_the_same_order_live() -> None:
    workload = bench.bounded(synthetic.make("poisson", 60, 8.0, 1), 0.5)
    order = {}
    with bench.simulated_engines(FLEET, 1.0) as live:
        for policy in POLICIES:
            answers, _ = live.ask(workload, policy)
            observed = [one for one in answers if isinstance(one, bench.Observed)]
            assert len(observed) == len(workload.arrivals), answers
            order[policy] = (bench.mean(bench.simulated(live.profiles, workload, policy, 1)), bench.mean(observed))
    predicted = {policy: one for policy, (one, _) in order.items()}
    assert predicted["round_robin"] > CLEAR * predicted["predicted_latency"], "the simulator says so"
    lines, right = bench.agreement(order, CLEAR)
    assert right, lines
