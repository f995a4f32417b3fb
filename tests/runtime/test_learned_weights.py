from tidegate.fleet.endpoint import EndpointSpec, PoolSpec
from tidegate.fleet.events import PoolsDeclared
from tidegate.fleet.state import Fleet
from tidegate.fleet.view import PoolView
from tidegate.runtime.learned_weights import LearnedWeights

FAST, SLOW = "127.0.0.1:1", "127.0.0.1:2"


def views(fast: str = "h100", slow: str = "rtx4090") -> tuple[tuple[PoolView, ...], Fleet]:
    fleet = Fleet(45.0)
    endpoints = (EndpointSpec(FAST, weight=1, gpu=fast), EndpointSpec(SLOW, weight=7, gpu=slow))
    pools = (
        PoolSpec(name="a", engine="none", models=("a",), endpoints=endpoints),
        PoolSpec(name="b", engine="none", models=("b",), endpoints=(EndpointSpec("127.0.0.1:3", weight=5),)),
    )
    fleet.apply(PoolsDeclared(pools), 0.0)
    return fleet.views(0.0), fleet


def told(weights: LearnedWeights, pools: tuple[PoolView, ...], fleet: Fleet) -> dict[str, float]:
    applied = weights.applied(pools, {"a"}, fleet.mix)
    return {one.address: one.weight for pool in applied for one in pool.endpoints}


def test_a_pool_that_learns_is_weighed_by_speed_and_others_as_declared() -> None:
    pools, fleet = views()
    found = told(LearnedWeights(), pools, fleet)
    assert found[FAST] == 100
    assert found[SLOW] < 60
    assert found["127.0.0.1:3"] == 5


def test_equal_endpoints_weigh_the_same_whatever_was_declared() -> None:
    pools, fleet = views(slow="h100")
    found = told(LearnedWeights(), pools, fleet)
    assert found[FAST] == found[SLOW] == 100


def test_a_speed_that_wavers_changes_no_weight() -> None:
    pools, fleet = views()
    weights = LearnedWeights()
    before = told(weights, pools, fleet)
    (first, *others), second = pools[0].endpoints, pools[1]
    wavering = first._replace(pace=first.pace._replace(prefill_seconds=first.pace.prefill_seconds * 1.05))
    moved = (pools[0]._replace(endpoints=(wavering, *others)), second)
    assert told(weights, moved, fleet) == before
