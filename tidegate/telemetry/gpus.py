"""GPUs and their agents, as gauges: read when Prometheus asks.

What is unknown has no sample: a GPU that does not say how warm it is, is not at 0 °C, and of a silent node there is
nothing but its silence. A GPU is labelled by its index, of which there are few, whatever an agent says.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from tidegate.telemetry.labels import clean

STATES: Final = ("healthy", "degraded", "failed", "unknown")

GAUGES: Final[Mapping[str, str]] = {
    "memory_total_bytes": "VRAM.",
    "memory_used_bytes": "VRAM in use.",
    "memory_free_bytes": "VRAM that is free.",
    "utilization_ratio": "Share of the time in which the GPU computed, 0 to 1.",
    "memory_utilization_ratio": "Share of the time in which the GPU's memory was read or written, 0 to 1.",
    "temperature_celsius": "Temperature.",
    "slowdown_temperature_celsius": "Temperature from which on it slows itself down.",
    "power_watts": "Power drawn.",
    "power_limit_watts": "Power allowed.",
    "remapped_rows": "Rows of memory that were remapped.",
    "row_remap_pending": "Whether rows of memory wait for a reset to be remapped.",
    "row_remap_failed": "Whether a row of memory could not be remapped.",
    "retired_pages": "Pages of memory that were retired.",
    "page_retirement_pending": "Whether pages of memory wait for a reset to be retired.",
    "nvlinks_active": "NVLinks that are up.",
    "nvlinks_lost": "NVLinks that were up, and are down.",
    "pcie_lanes": "PCIe lanes in use.",
    "pcie_max_lanes": "PCIe lanes that are possible.",
}
"""Of each GPU: its name after ``tidegate_gpu_``, and what it is."""

COUNTERS: Final[Mapping[str, str]] = {
    "ecc_corrected_errors": "Memory errors corrected since the driver was loaded.",
    "ecc_uncorrected_errors": "Memory errors not corrected since the driver was loaded.",
    "nvlink_errors": "Errors of NVLinks.",
    "pcie_replays": "PCIe packets sent again.",
}


class GpuFigures(NamedTuple):
    """One GPU.

    Attributes:
        ordinal: its index on its node.
        uuid: its UUID.
        name: its model.
        state: one of ``STATES``.
        reasons: why it is in that state; of few different words.
        values: what is known of it, by the names in ``GAUGES`` and ``COUNTERS``.
    """

    ordinal: int
    uuid: str
    name: str
    state: str
    reasons: tuple[str, ...]
    values: Mapping[str, float]


class NodeFigures(NamedTuple):
    """One node.

    Attributes:
        name: the node's.
        heard: whether its agent speaks.
        age: seconds since it last did; ``None`` when it never did.
        gpus: as it last said; empty while it is silent.
        engines: whether the engines that it asks answer it: how many do, and how many do not.
    """

    name: str
    heard: bool
    age: float | None
    gpus: tuple[GpuFigures, ...] = ()
    engines: tuple[int, int] = (0, 0)


class GpuCollector(Collector):
    """Gauges of every node, labelled ``node``, and of every GPU, labelled ``node`` and ``gpu``."""

    def __init__(self, nodes: Callable[[], Iterable[NodeFigures]]) -> None:
        """Read them from ``nodes``."""
        self._nodes = nodes

    def collect(self) -> Iterator[GaugeMetricFamily | CounterMetricFamily]:
        """Yield the families."""
        nodes = tuple(self._nodes())
        yield from _of_agents(nodes)
        yield from _of_states(nodes)
        families: dict[str, GaugeMetricFamily | CounterMetricFamily] = {
            name: GaugeMetricFamily(f"tidegate_gpu_{name}", text, labels=("node", "gpu"))
            for name, text in GAUGES.items()
        }
        families |= {
            name: CounterMetricFamily(f"tidegate_gpu_{name}", text, labels=("node", "gpu"))
            for name, text in COUNTERS.items()
        }
        for node, gpu in _each(nodes):
            for name, value in gpu.values.items():
                families[name].add_metric((node, str(gpu.ordinal)), value)
        yield from families.values()


def _each(nodes: Iterable[NodeFigures]) -> Iterator[tuple[str, GpuFigures]]:
    """Yield all GPUs; of two with one index the first: a page with a series twice is thrown away as a whole."""
    for node in nodes:
        seen: set[int] = set()
        for gpu in node.gpus:
            if gpu.ordinal not in seen:
                seen.add(gpu.ordinal)
                yield clean(node.name), gpu


def _of_agents(nodes: Iterable[NodeFigures]) -> Iterator[GaugeMetricFamily]:
    up = GaugeMetricFamily("tidegate_agent_up", "Whether the GPU agent of a node is heard.", labels=("node",))
    age = GaugeMetricFamily("tidegate_agent_age_seconds", "Time since a node's last report.", labels=("node",))
    engines = GaugeMetricFamily(
        "tidegate_agent_engines",
        "Engines that an agent asks whether they are well, by whether they answer so.",
        labels=("node", "answers"),
    )
    for node in nodes:
        name = clean(node.name)
        up.add_metric((name,), float(node.heard))
        if node.age is not None:
            age.add_metric((name,), node.age)
        if any(node.engines):
            engines.add_metric((name, "true"), node.engines[0])
            engines.add_metric((name, "false"), node.engines[1])
    yield from (up, age, engines)


def _of_states(nodes: Iterable[NodeFigures]) -> Iterator[GaugeMetricFamily]:
    state = GaugeMetricFamily(
        "tidegate_gpu_state", "1 for what its agent thinks of a GPU, else 0.", labels=("node", "gpu", "state")
    )
    reason = GaugeMetricFamily("tidegate_gpu_reason", "1 for each reason for that.", labels=("node", "gpu", "reason"))
    info = GaugeMetricFamily("tidegate_gpu_info", "1: which GPU it is.", labels=("node", "gpu", "uuid", "name"))
    for node, gpu in _each(nodes):
        own = (node, str(gpu.ordinal))
        for name in STATES:
            state.add_metric((*own, name), float(name == gpu.state))
        for word in dict.fromkeys(gpu.reasons):
            reason.add_metric((*own, word), 1.0)
        info.add_metric((*own, clean(gpu.uuid), clean(gpu.name)), 1.0)
    yield from (state, reason, info)
