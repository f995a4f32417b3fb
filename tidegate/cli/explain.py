"""``tidegate explain``: why a recorded request went where it went, by the code that decided."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tidegate.cli._admin import PIPE_WIDTH
from tidegate.scheduling import pickers
from tidegate.scheduling.explain import Case, Explanation, explain
from tidegate.telemetry import decision_record
from tidegate.telemetry.decision_record import MAX_LINE_BYTES, MalformedRecordError


@click.command("explain", short_help="Say why a recorded request went where it went.")
@click.option(
    "--record",
    "file",
    required=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The file of decision_log.file.",
)
@click.option("--id", "wanted", help="The request's id, or its beginning; the last one recorded by default.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(file: Path, wanted: str | None, as_json: bool) -> None:
    """Replay a recorded decision: what each filter did, every score, what the pick rests on, and the runner-up.

    What a policy remembers from one request to the next, as round_robin does, is not recorded; where the order differs
    from the pick for that reason, the pick is the recorded one.
    """
    case = _find(file, wanted)
    try:
        explanation = explain(case, pickers.make(case.policy.picker, dict(case.policy.weights)))
    except (KeyError, ValueError) as error:
        raise click.ClickException(f"the record names something that this release does not know: {error}") from None
    if as_json:
        click.echo(json.dumps(describe(explanation), indent=2))
    else:
        _print(explanation)


def _find(file: Path, wanted: str | None) -> Case:
    found = None
    try:
        with file.open("rb") as lines:
            for number, line in enumerate(iter(lambda: lines.readline(MAX_LINE_BYTES + 1), b""), 1):
                case = _read(line, f"{file}:{number}")
                if wanted is None or case.request.id.startswith(wanted):
                    found = case
                    if wanted is not None:
                        break
    except OSError as error:
        raise click.ClickException(f"{file}: cannot be read ({error.strerror})") from None
    if found is None:
        what = "no record" if wanted is None else f"no record of a request {wanted}"
        raise click.ClickException(f"{file}: {what}")
    return found


def _read(line: bytes, place: str) -> Case:
    try:
        return decision_record.decode(line)
    except MalformedRecordError as error:
        raise click.ClickException(f"{place}: {error}") from None


def describe(explanation: Explanation) -> dict[str, Any]:
    """Return ``explanation`` as JSON has it."""
    case, request = explanation.case, explanation.case.request
    return {
        "id": request.id,
        "pool": request.pool,
        "route": request.route,
        "policy": case.policy.picker,
        "model": request.model,
        "prompt_tokens": request.prompt.tokens,
        "output_tokens": request.output_tokens,
        "members": case.members,
        "looked_at": [endpoint.address for endpoint in case.candidates],
        "filters": [step._asdict() for step in explanation.steps],
        "scores": explanation.scores,
        "figures": explanation.figures,
        "order": explanation.order,
        "pick": explanation.pick,
        "runner_up": explanation.runner_up,
        "addresses": case.addresses,
    }


def _print(explanation: Explanation) -> None:
    case = explanation.case
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = PIPE_WIDTH
    for line in _lines(explanation):
        console.print(Text(line))
    names = sorted({name for figures in explanation.figures.values() for name in figures})
    table = Table(box=box.SIMPLE_HEAD, padding=0, pad_edge=False, collapse_padding=False)
    table.add_column("endpoint", no_wrap=True)
    for heading in ("requests", "tokens", "cached", *explanation.scores, *names):
        table.add_column(f" {heading}", no_wrap=True, justify="right")
    views = {endpoint.address: endpoint for endpoint in case.candidates}
    for address in explanation.order:
        view = views[address]
        figures = explanation.figures.get(address, {})
        cells = [f"{view.requests:.4g}", f"{view.tokens:.6g}", str(view.cached_tokens)]
        cells += [f"{scores[address]:.3g}" for scores in explanation.scores.values()]
        cells += [f"{figures[name]:.4g}" if name in figures else "-" for name in names]
        table.add_row(*map(Text, (address, *cells)))
    console.print(table)


def _lines(explanation: Explanation) -> Iterator[str]:
    case, request = explanation.case, explanation.case.request
    yield f"request {request.id}: model {request.model or '-'}, pool {request.pool}, policy {case.policy.picker}"
    if request.route:
        yield f"to that pool by the route {request.route}"
    yield f"{request.prompt.tokens} prompt tokens, {request.output_tokens} expected to be generated"
    yield f"looked at {len(case.candidates)} of {case.members} endpoints"
    for step in explanation.steps:
        if step.passed_over:
            yield f"filter {step.filter}: passed over, it would have left nobody"
        elif step.removed:
            yield f"filter {step.filter}: left out {', '.join(step.removed)}"
    yield f"pick {explanation.pick or '-'}, runner-up {explanation.runner_up or '-'}"
    if explanation.order and case.addresses and explanation.order[0] != case.addresses[0]:
        yield f"(without what the policy remembered, {explanation.order[0]} would have been picked)"
