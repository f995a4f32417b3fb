"""``tidegate simulate``: policies side by side on a trace, under a virtual clock."""

import contextlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from tidegate.scheduling.lanes import Lane
from tidegate.scheduling.line import QueueSettings
from tidegate.simulator.virtual import capacity, outcome, plots, synthetic, traces
from tidegate.simulator.virtual.conditions import Conditions, Fault
from tidegate.simulator.virtual.fleet import FleetSpec
from tidegate.simulator.virtual.report import SLO, Report, summarise
from tidegate.simulator.virtual.simulation import Simulation, policies
from tidegate.simulator.virtual.table import by_class, of_waits, table
from tidegate.simulator.virtual.workload import Workload

PIPE_WIDTH = 10_000
"""Columns of what is not a terminal: more than any table has."""
SYNTHETIC_REQUESTS = 10_000
SYNTHETIC_RATE = 20.0
DEFAULT_UTILISATION = 0.8


class _Parsed(click.ParamType[Any]):
    """A value that one of the simulator's own parsers reads."""

    def __init__(self, name: str, parse: Callable[[str], Any]) -> None:
        self.name = name
        self._parse = parse

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        try:
            return self._parse(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


@click.command("simulate", short_help="Compare policies on a trace, under a virtual clock.")
@click.option(
    "--fleet",
    "spec",
    type=_Parsed("PROFILE:COUNT,...", FleetSpec.parse),
    default="h100:4,a100:4,rtx4090:8",
    show_default=True,
    help="The endpoints by their GPUs.",
)
@click.option(
    "--trace",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A trace in Azure's, Mooncake's, BurstGPT's or Qwen-Bailian's format.",
)
@click.option(
    "--workload",
    "kind",
    type=click.Choice(synthetic.names()),
    default="poisson",
    show_default=True,
    help="A synthetic workload, where no trace is given.",
)
@click.option(
    "--requests",
    type=click.IntRange(1),
    show_default=f"all of a trace, {SYNTHETIC_REQUESTS:,} of a synthetic workload",
    help="How many requests, from the first.",
)
@click.option(
    "--split",
    type=click.Choice(("all", "train", "test")),
    default="all",
    show_default=True,
    help="Which half of the requests, by time: tune on one, report the other.",
)
@click.option(
    "--utilisation",
    type=click.FloatRange(0, min_open=True),
    show_default=f"{DEFAULT_UTILISATION}, unless --rate or --capacity is given",
    help="Scale time so that the fleet has this share to do of what it can.",
)
@click.option(
    "--rate", type=click.FloatRange(0, min_open=True), help="Scale time so that so many requests come a second."
)
@click.option(
    "--policy",
    "names",
    type=click.Choice(policies()),
    multiple=True,
    help="A policy; repeat it for several. Without any, all of them.",
)
@click.option(
    "--lane",
    "lanes",
    type=_Parsed("ABOVE_TOKENS:SHARE", Lane.parse),
    multiple=True,
    help="A share of the endpoints for prompts of more tokens, such as 20000:0.25; repeat it for several.",
)
@click.option(
    "--queue",
    "max_wait",
    type=click.FloatRange(0, min_open=True),
    metavar="SECONDS",
    help="Have requests wait for room, for so long at the most; otherwise they go to engines that are full.",
)
@click.option(
    "--seed", "seeds", type=int, multiple=True, default=(0,), show_default=True, help="Repeat it for several runs."
)
@click.option(
    "--scrape-interval", type=click.FloatRange(0, min_open=True), default=1.0, show_default=True, help="Seconds."
)
@click.option(
    "--scrape-delay",
    type=click.FloatRange(0),
    default=0.02,
    show_default=True,
    help="Seconds from what an engine says to its arrival.",
)
@click.option(
    "--faults",
    type=_Parsed("KIND:ENDPOINT@SECOND+SECONDS", Fault.parse),
    multiple=True,
    help="Something that goes wrong, such as die:3@60+30 (also freeze, slow); repeat it for several.",
)
@click.option(
    "--slo-ttft",
    type=click.FloatRange(0, min_open=True),
    default=2.0,
    show_default=True,
    help="Seconds to the first token in a good answer.",
)
@click.option(
    "--slo-tpot",
    type=click.FloatRange(0, min_open=True),
    default=0.1,
    show_default=True,
    help="Seconds per token after it in a good answer.",
)
@click.option(
    "--warmup",
    type=click.FloatRange(0, 1, max_open=True),
    default=0.0,
    show_default=True,
    help="Share of the requests, from the first, that do not count.",
)
@click.option(
    "--capacity",
    "asks_size",
    is_flag=True,
    help="Say how many endpoints (of the fleet's GPUs, in their shares) the requests need.",
)
@click.option(
    "--target",
    type=click.FloatRange(0, 1),
    default=0.99,
    show_default=True,
    help="Share of good answers that --capacity asks for.",
)
@click.option(
    "--most",
    type=click.IntRange(1),
    default=capacity.MOST_ENDPOINTS,
    show_default=True,
    help="The largest fleet that --capacity tries.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of the table.")
@click.option(
    "--plots",
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder to draw PNG files into; needs tidegate[plots].",
)
def command(
    spec: FleetSpec,
    trace: Path | None,
    kind: str,
    requests: int | None,
    split: str,
    utilisation: float | None,
    rate: float | None,
    names: tuple[str, ...],
    lanes: tuple[Lane, ...],
    max_wait: float | None,
    seeds: tuple[int, ...],
    scrape_interval: float,
    scrape_delay: float,
    faults: tuple[Fault, ...],
    slo_ttft: float,
    slo_tpot: float,
    warmup: float,
    asks_size: bool,
    target: float,
    most: int,
    as_json: bool,
    folder: Path | None,
) -> None:
    """Compare policies on a trace or a synthetic workload, under a virtual clock.

    The code that decides is the one that runs live. The engines are models of a GPU with an 8B model: continuous
    batching, chunked prefill, KV blocks, preemption, prefix cache. The policy named oracle knows what no policy can.
    """
    if utilisation is not None and rate is not None:
        raise click.UsageError("--utilisation and --rate exclude each other")
    try:
        workload = _workload(trace, kind, requests, split, seeds[0])
        if rate is not None:
            workload = workload.at_rate(rate)
        elif utilisation is not None or not asks_size:
            workload = capacity.at_utilisation(spec, workload, utilisation or DEFAULT_UTILISATION)
        conditions = Conditions(scrape_interval, scrape_delay, faults=faults)
        slo = SLO(slo_ttft, slo_tpot)
        chosen = names or policies()
        queue = None if max_wait is None else QueueSettings(max_wait_seconds=max_wait)
        if asks_size:
            _print_sizes(spec, workload, chosen, queue, conditions, slo, target, most, seeds[0], as_json)
            return
        runs = _run(spec, workload, chosen, lanes, queue, seeds, conditions, slo, warmup, folder)
    except ValueError as error:
        raise click.ClickException(str(error)) from None
    except ImportError:
        raise click.ClickException("--plots needs matplotlib; expected pip install 'tidegate[plots]'") from None
    if as_json:
        click.echo(json.dumps([report.as_dict() for report in runs], indent=2))
        return
    console = _console()
    rate = workload.rate
    console.print(
        f"{workload.name}: {len(workload.arrivals)} requests, {rate:.1f}/s, on {spec}; "
        f"good: TTFT <= {slo.ttft:g} s and TPOT <= {slo.tpot * 1e3:g} ms",
        highlight=False,
    )
    console.print(table(runs))
    if queue is not None or len({one.priority for one in workload.arrivals}) > 1:
        console.print(by_class(runs))
    if any(report.waits is not None for report in runs):
        console.print(of_waits(runs))


def _workload(trace: Path | None, kind: str, requests: int | None, split: str, seed: int) -> Workload:
    if trace is None:
        workload = synthetic.make(kind, requests or SYNTHETIC_REQUESTS, SYNTHETIC_RATE, seed)
    else:
        workload = traces.read(trace)
    begin, end = {"all": (0.0, 1.0), "train": (0.0, 0.5), "test": (0.5, 1.0)}[split]
    workload = workload.part(begin, end)
    if requests is not None and requests < len(workload.arrivals):
        workload = workload.part(0.0, requests / len(workload.arrivals))
    return workload


def _run(
    spec: FleetSpec,
    workload: Workload,
    names: tuple[str, ...],
    lanes: tuple[Lane, ...],
    queue: QueueSettings | None,
    seeds: tuple[int, ...],
    conditions: Conditions,
    slo: SLO,
    warmup: float,
    folder: Path | None,
) -> list[Report]:
    """Run every policy with every seed, with a progress bar where somebody looks; draw where that is asked for."""
    reports: list[Report] = []
    drawn: dict[str, tuple[Report, outcome.Recording]] = {}
    with _progress() as bar:
        for name in names:
            for seed in seeds:
                task = bar.add_task(name, total=len(workload.arrivals))
                simulation = Simulation(spec, workload, name, seed, conditions, lanes, queue)

                def tell(arrived: int, task: TaskID = task) -> None:
                    bar.update(task, completed=arrived)

                recording = simulation.run(tell)
                reports.append(summarise(recording, spec, workload, name, seed, slo, warmup))
                if folder is not None:
                    drawn.setdefault(name, (reports[-1], recording))
    if folder is not None:
        for path in plots.draw(drawn, folder):
            click.echo(f"drawn: {path}", err=True)
    return reports


def _print_sizes(
    spec: FleetSpec,
    workload: Workload,
    names: tuple[str, ...],
    queue: QueueSettings | None,
    conditions: Conditions,
    slo: SLO,
    target: float,
    most: int,
    seed: int,
    as_json: bool,
) -> None:
    found: dict[str, Any] = {}
    for name in names:
        with _progress() as bar:
            task = bar.add_task(name, total=None)

            def tell(count: int, goodput: float, task: TaskID = task, name: str = name) -> None:
                bar.update(task, description=f"{name}: {count} endpoints, {goodput:.1%} good")

            answer = capacity.endpoints_needed(
                spec,
                workload,
                name,
                slo=slo,
                target=target,
                most=most,
                queue=queue,
                seed=seed,
                conditions=conditions,
                progress=tell,
            )
        found[name] = None if answer is None else {"endpoints": answer[0], "report": answer[1].as_dict()}
        if not as_json and answer is None:
            click.echo(f"{name}: not even with {most} endpoints")
        elif not as_json and answer is not None:
            click.echo(f"{name}: {answer[0]} endpoints ({answer[1].fleet}), {answer[1].goodput:.1%} good")
    if as_json:
        click.echo(json.dumps(found, indent=2))


@contextlib.contextmanager
def _progress() -> Iterator[Progress]:
    """Show a bar on standard error, if that is a terminal."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        yield bar


def _console() -> Console:
    console = Console()
    if not console.is_terminal:
        console.width = PIPE_WIDTH
    return console
