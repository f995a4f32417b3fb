"""GPUs on the page for Prometheus."""

from collections.abc import Iterable

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from tidegate.telemetry.gpus import COUNTERS, GAUGES, GpuCollector, GpuFigures, NodeFigures

ORDER = ("node", "gpu", "state", "reason", "uuid", "name", "answers")
ALL = dict.fromkeys([*GAUGES, *COUNTERS], 1.0)


def samples(*nodes: NodeFigures) -> dict[tuple[str, tuple[str, ...]], float]:
    """Return what is on the page, by name and the values of the labels."""
    registry = CollectorRegistry()
    registry.register(GpuCollector(lambda: nodes))
    page = generate_latest(registry).decode()
    return {
        (sample.name, tuple(sample.labels[name] for name in ORDER if name in sample.labels)): sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
    }


def node(name: str = "gpu-7", gpus: Iterable[GpuFigures] = (), engines: tuple[int, int] = (0, 0)) -> NodeFigures:
    return NodeFigures(name, heard=True, age=1.5, gpus=tuple(gpus), engines=engines)


def test_every_figure_that_is_known_is_there_with_node_and_index() -> None:
    page = samples(node(gpus=[GpuFigures(3, "GPU-3", "H100", "failed", ("xid_79",), ALL)], engines=(1, 2)))
    for name in GAUGES:
        assert page[f"tidegate_gpu_{name}", ("gpu-7", "3")] == 1.0
    for name in COUNTERS:
        assert page[f"tidegate_gpu_{name}_total", ("gpu-7", "3")] == 1.0
    assert page["tidegate_gpu_state", ("gpu-7", "3", "failed")] == 1.0
    assert page["tidegate_gpu_state", ("gpu-7", "3", "healthy")] == 0.0
    assert page["tidegate_gpu_reason", ("gpu-7", "3", "xid_79")] == 1.0
    assert page["tidegate_gpu_info", ("gpu-7", "3", "GPU-3", "H100")] == 1.0
    assert page["tidegate_agent_engines", ("gpu-7", "true")] == 1.0
    assert page["tidegate_agent_engines", ("gpu-7", "false")] == 2.0


def test_what_is_unknown_has_no_sample() -> None:
    page = samples(node(gpus=[GpuFigures(0, "GPU-0", "", "unknown", (), {})]))
    measured = {name for name, _ in page} - {"tidegate_gpu_state", "tidegate_gpu_info"}
    assert measured == {"tidegate_agent_up", "tidegate_agent_age_seconds"}


def test_of_a_silent_node_there_is_its_silence_alone() -> None:
    page = samples(NodeFigures("gpu-7", heard=False, age=30.0), NodeFigures("never", heard=False, age=None))
    assert page == {
        ("tidegate_agent_up", ("gpu-7",)): 0.0,
        ("tidegate_agent_up", ("never",)): 0.0,
        ("tidegate_agent_age_seconds", ("gpu-7",)): 30.0,
    }


def test_two_gpus_with_one_index_do_not_cost_the_page() -> None:
    twice = [GpuFigures(0, f"GPU-{at}", "", "healthy", ("a", "a"), {"power_watts": at}) for at in (1.0, 2.0)]
    page = samples(node(gpus=twice))
    assert page["tidegate_gpu_power_watts", ("gpu-7", "0")] == 1.0


def test_names_that_do_not_print_are_cleaned() -> None:
    page = samples(node(name='n"\n', gpus=[GpuFigures(0, "\udc80", "\x00", "healthy", (), {})]))
    assert ("tidegate_agent_up", ('n"\N{REPLACEMENT CHARACTER}',)) in page
