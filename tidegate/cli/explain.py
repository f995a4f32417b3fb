"""``tidegate explain``: why a request goes where it goes, by the code that decides, or why an endpoint is how it is."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tidegate.cli import _endpoint
from tidegate.cli._admin import PIPE_WIDTH
from tidegate.cli._live import ask
from tidegate.scheduling import pickers
from tidegate.scheduling.explain import Case, Explanation, explain
from tidegate.telemetry import decision_record
from tidegate.telemetry.decision_record import MAX_LINE_BYTES, MalformedRecordError


@click.command("explain", short_help="Say why a request goes where it goes, or why an endpoint is how it is.")
@click.option(
    "--record",
    "file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The file of decision_log.file.",
)
@click.option("--id", "wanted", help="The request's id, or its beginning; the last one recorded by default.")
@click.option("--live", is_flag=True, help="Ask a running control plane how it would decide now.")
@click.option("--endpoint", metavar="IP:PORT", help="Ask a running control plane why this endpoint is how it is.")
@click.option("--admin", default="127.0.0.1:9090", show_default=True, metavar="HOST:PORT", help="Its admin address.")
@click.option("--model", default="", help="The model that the request would name.")
@click.option("--prompt", help="The prompt's text: it is counted, and looked for in what engines have cached.")
@click.option("--prompt-tokens", type=click.IntRange(0), help="How many tokens it has; otherwise those of --prompt.")
@click.option("--max-tokens", type=click.IntRange(0), help="The most tokens that the client would take.")
@click.option("--pool", default="", help="The pool that a route would name.")
@click.option("--session", default="", help="The name of its session.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(
    file: Path | None,
    wanted: str | None,
    live: bool,
    endpoint: str | None,
    admin: str,
    model: str,
    prompt: str | None,
    prompt_tokens: int | None,
    max_tokens: int | None,
    pool: str,
    session: str,
    as_json: bool,
) -> None:
    """Explain a decision: what each filter did, every score, what the pick rests on, and the runner-up.

    With --record, of a request that was recorded. What a policy remembers from one request to the next, as round_robin
    does, is not recorded; where the order differs from the pick for that reason, the pick is the recorded one.

    With --live, of one that is only asked about: a control plane says how it would decide now, and sends and reserves
    nothing. Where chance settles a tie, it may fall otherwise the next time.

    With --endpoint, of an endpoint: how healthy it is and since when, what each source says of it and how long ago, and
    what would change it.
    """
    if [live, file is not None, endpoint is not None].count(True) != 1:
        raise click.UsageError("expected one of --record FILE, --live and --endpoint")
    if endpoint is not None:
        _endpoint.explain(admin, endpoint, as_json=as_json)
        return
    if file is not None:
        case = _find(file, wanted)
    elif prompt is None and prompt_tokens is None:
        raise click.UsageError("--live needs --prompt or --prompt-tokens")
    else:
        question = {
            "model": model,
            "prompt": prompt,
            "prompt_tokens": prompt_tokens,
            "max_tokens": max_tokens,
            "pool": pool,
            "session": session,
        }
        case = _read(ask(admin, question), admin)
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
                # Ours ends with the x-request-id that the client knows.
                if wanted is None or case.request.id.startswith(wanted) or case.request.id.endswith(f"/{wanted}"):
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
