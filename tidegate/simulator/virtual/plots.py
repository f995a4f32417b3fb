"""Reports as pictures. Needs matplotlib: ``pip install 'tidegate[plots]'``."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tidegate.simulator.virtual.outcome import Recording
from tidegate.simulator.virtual.report import Report

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def draw(runs: Mapping[str, tuple[Report, Recording]], folder: Path) -> list[Path]:
    """Draw one run of each policy into PNG files in ``folder``, which is made; return their paths.

    Raises:
        ImportError: matplotlib is not installed.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415 - an optional dependency
    from matplotlib.figure import Figure  # noqa: PLC0415

    folder.mkdir(parents=True, exist_ok=True)
    paths: list[Path] = []
    for name, fill in (
        ("ttft", _ttft),
        ("end_to_end", _end_to_end),
        ("kv_usage", _kv_usage),
        ("goodput", _goodput),
    ):
        figure = Figure(figsize=(9, 5), layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.subplots()
        fill(axes, runs)
        axes.grid(visible=True, alpha=0.3)
        paths.append(folder / f"{name}.png")
        figure.savefig(paths[-1], dpi=120)
    return paths


def _shares(axes: "Axes", values: Sequence[float], label: str) -> None:
    """Draw which share of ``values`` is at most so large."""
    ranked = sorted(values)
    axes.plot(ranked, [(at + 1) / len(ranked) for at in range(len(ranked))], label=label)


def _ttft(axes: "Axes", runs: Mapping[str, tuple[Report, Recording]]) -> None:
    for policy, (_, recording) in runs.items():
        if known := [one.ttft for one in recording.outcomes if one.ttft]:
            _shares(axes, known, policy)
    axes.set(xscale="log", xlabel="seconds to the first token", ylabel="share of requests")
    axes.legend()


def _end_to_end(axes: "Axes", runs: Mapping[str, tuple[Report, Recording]]) -> None:
    for policy, (_, recording) in runs.items():
        if known := [one.end_to_end for one in recording.outcomes if one.end_to_end]:
            _shares(axes, known, policy)
    axes.set(xscale="log", xlabel="seconds to the last token", ylabel="share of requests")
    axes.legend()


def _kv_usage(axes: "Axes", runs: Mapping[str, tuple[Report, Recording]]) -> None:
    for policy, (_, recording) in runs.items():
        samples = [sample for sample in recording.samples if sample.kv_usage]
        axes.plot(
            [sample.at for sample in samples],
            [sum(sample.kv_usage) / len(sample.kv_usage) for sample in samples],
            label=policy,
        )
    axes.set(xlabel="seconds", ylabel="share of KV cache in use, mean of the endpoints")
    axes.legend()


def _goodput(axes: "Axes", runs: Mapping[str, tuple[Report, Recording]]) -> None:
    axes.barh(list(runs), [report.goodput for report, _ in runs.values()])
    axes.invert_yaxis()
    axes.set(xlim=(0, 1), xlabel="share of requests that meet the SLO")
