"""How full the pools are, as gauges and as JSON."""

from prometheus_client import CollectorRegistry, generate_latest

from tidegate.scheduling.saturation import Saturation
from tidegate.telemetry.saturation import SaturationCollector, describe

FULL = Saturation(kv=0.5, batch=0.25, queue=1.2, ttft=0.75, silent=1, endpoints=3)
EMPTY = Saturation(kv=None, batch=None, queue=0.0, ttft=None)


def page(pools: dict[str, Saturation]) -> list[str]:
    registry = CollectorRegistry()
    registry.register(SaturationCollector(lambda: pools))
    return [line for line in generate_latest(registry).decode().splitlines() if not line.startswith("#")]


def test_each_part_that_is_known_has_a_sample() -> None:
    assert page({"llama": FULL}) == [
        'tidegate_pool_saturation{part="kv",pool="llama"} 0.5',
        'tidegate_pool_saturation{part="batch",pool="llama"} 0.25',
        'tidegate_pool_saturation{part="queue",pool="llama"} 1.2',
        'tidegate_pool_saturation{part="ttft",pool="llama"} 0.75',
        'tidegate_pool_saturation{part="total",pool="llama"} 1.2',
        'tidegate_pool_endpoints{pool="llama"} 3.0',
        'tidegate_pool_silent_endpoints{pool="llama"} 1.0',
    ]


def test_a_pool_without_endpoints_has_its_queue_and_no_figure_of_what_is_not_there() -> None:
    assert page({"asleep": EMPTY}) == [
        'tidegate_pool_saturation{part="queue",pool="asleep"} 0.0',
        'tidegate_pool_saturation{part="total",pool="asleep"} 0.0',
        'tidegate_pool_endpoints{pool="asleep"} 0.0',
        'tidegate_pool_silent_endpoints{pool="asleep"} 0.0',
    ]


def test_a_pool_that_is_gone_has_no_series() -> None:
    pools = {"llama": FULL}
    registry = CollectorRegistry()
    registry.register(SaturationCollector(lambda: pools))
    generate_latest(registry)
    pools.clear()
    assert "llama" not in generate_latest(registry).decode()


def test_the_page_says_what_is_unknown() -> None:
    unknown = {"kv": None, "batch": None, "queue": 0.0, "ttft": None, "silent": 0, "endpoints": 0}
    known = {"kv": 0.5, "batch": 0.25, "queue": 1.2, "ttft": 0.75, "silent": 1, "endpoints": 3}
    assert describe({"llama": FULL, "asleep": EMPTY}) == {
        "pools": {"llama": {"total": 1.2, **known}, "asleep": {"total": 0.0, **unknown}}
    }
