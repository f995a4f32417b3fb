"""Why one endpoint is how it is, asked of a running control plane and printed."""

import json
from collections.abc import Iterator
from urllib.parse import urlencode

import click
import msgspec

from tidegate.cli._admin import ask


class _Word(msgspec.Struct):
    source: str
    verdict: str
    reasons: list[str]
    detail: str
    age_seconds: float
    counts_for_seconds: float | None


class _Alarm(msgspec.Struct):
    panic: bool
    agents_doubted: bool
    bad: int
    of: int


class _Learned(msgspec.Struct):
    prefill_seconds: float
    expected_prefill_seconds: float
    prefill_samples: float
    step_seconds: float
    expected_step_seconds: float
    step_samples: float


class _Endpoint(msgspec.Struct):
    address: str
    pool: str
    status: str
    reasons: list[str]
    seconds: float
    share: float
    ejections: int
    learned: _Learned
    sources: list[_Word]
    pool_alarm: _Alarm
    would_change: list[str]


def explain(admin: str, address: str, *, as_json: bool) -> None:
    """Print why the endpoint at ``address`` is how it is, as the control plane at ``admin`` (host:port) says.

    Raises:
        click.ClickException: it cannot be asked, or knows no such endpoint.
    """
    body, told = ask(admin, f"/endpoint?{urlencode({'address': address})}", _Endpoint, says=True)
    if as_json:
        click.echo(json.dumps(json.loads(body), indent=2))
        return
    for line in _lines(told):
        click.echo(line)


def _lines(told: _Endpoint) -> Iterator[str]:
    why = f": {', '.join(told.reasons)}" if told.reasons else ""
    yield f"endpoint {told.address} of pool {told.pool} is {told.status} for {told.seconds:.0f} s{why}"
    often = {0: "not ejected", 1: "ejected once"}.get(told.ejections, f"ejected {told.ejections} times")
    yield f"it gets {told.share:.0%} of its share, and was {often} of late"
    pace = told.learned
    prompt, expected = _ms(pace.prefill_seconds * 1000), _ms(pace.expected_prefill_seconds * 1000)
    yield (
        f"pace as learned: {_ms(pace.step_seconds)} a step (expected {_ms(pace.expected_step_seconds)}), "
        f"{prompt} for 1000 prompt tokens (expected {expected}); "
        f"{pace.step_samples:.0f} and {pace.prefill_samples:.0f} samples of its own"
    )
    if told.pool_alarm.panic:
        yield f"panic: {told.pool_alarm.bad} of {told.pool_alarm.of} endpoints look bad, so nobody is ejected"
    if told.pool_alarm.agents_doubted:
        yield "agents alone condemn too many endpoints of the pool to be believed"
    for word in told.sources:
        reasons = f" ({', '.join(word.reasons)})" if word.reasons else ""
        counts = "" if word.counts_for_seconds is None else f", counts for {word.counts_for_seconds:.0f} s more"
        detail = f": {word.detail}" if word.detail else ""
        yield f"{word.source} said {word.verdict}{reasons} {word.age_seconds:.1f} s ago{counts}{detail}"
    if not told.sources:
        yield "nobody has said anything of it"
    for change in told.would_change:
        yield f"what would change it: {change}"


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.3g} ms"
