"""Why an endpoint is how it is: what every source says of it, how old that is, and what would change it."""

from collections.abc import Iterator
from typing import NamedTuple

from tidegate.fleet.condition import ANY, CALMING, DISBELIEVED, SPARED, Condition
from tidegate.fleet.evidence import Verdict
from tidegate.fleet.gpu import Pace
from tidegate.fleet.health import Health, HealthRules, HealthStatus
from tidegate.fleet.pool_health import Alarm
from tidegate.fleet.rates import Rates
from tidegate.fleet.weighing import lasts_until


class Word(NamedTuple):
    """What one source says.

    Attributes:
        source: who.
        verdict: what it thinks.
        reasons: why.
        detail: one line for people.
        age: how long ago it said so, in seconds.
        left: for how many seconds more that counts; infinite where it counts until something else is said.
    """

    source: str
    verdict: Verdict
    reasons: tuple[str, ...]
    detail: str
    age: float
    left: float


class Outlook(NamedTuple):
    """How one endpoint is, and why.

    Attributes:
        pool: its pool.
        health: how it is.
        seconds: for how long.
        ejections: how often it was ejected of late.
        pace: how fast it is taken to be, and ``expected``, how fast before anything was seen of it.
        samples: how many observations of prefill and of decoding of its own stand behind that.
        words: what the sources say, the newest first.
        alarm: what is the matter with its pool.
        would_change: what would make it another, a sentence each.
    """

    pool: str
    health: Health
    seconds: float
    ejections: int
    pace: Pace
    expected: Pace
    samples: tuple[float, float]
    words: tuple[Word, ...]
    alarm: Alarm
    would_change: tuple[str, ...]


def outlook(pool: str, condition: Condition, rates: Rates, rules: HealthRules, alarm: Alarm, now: float) -> Outlook:
    """Return why the endpoint of ``condition`` and ``rates`` in ``pool`` is how it is at ``now`` (seconds)."""
    words = sorted(
        (
            Word(
                source,
                one.verdict,
                one.reasons,
                one.detail,
                max(0.0, now - at),
                max(0.0, lasts_until(one, at) - now),
            )
            for source, (one, at) in condition.said.items()
        ),
        key=lambda word: word.age,
    )
    return Outlook(
        pool,
        condition.health,
        max(0.0, now - condition.health.since),
        condition.remembered(now, rules),
        rates.pace,
        rates.prior,
        rates.samples,
        tuple(words),
        alarm,
        tuple(_would_change(condition, rules, words, now)),
    )


def _would_change(condition: Condition, rules: HealthRules, words: list[Word], now: float) -> Iterator[str]:
    status, reasons = condition.health.status, condition.health.reasons
    against = [word for word in words if word.verdict in {Verdict.FAILED, Verdict.IMPAIRED} and word.left > 0]
    if status is HealthStatus.DRAINING:
        yield "it gets requests again when it is no longer declared with drain"
        return
    for word in against:
        ends = "" if word.left == float("inf") else f", or {word.left:.0f} s pass without a word of it"
        yield f"{word.source} would have to say something else{ends}"
    if status is HealthStatus.EJECTED:
        held = max(condition.hold_until - now, rules.calm_seconds - (now - condition.condemned_at), 0.0)
        yield f"it is held for {held:.0f} s more at least, and then gets its share over {rules.warm_up_seconds:.0f} s"
    if status is HealthStatus.JOINING:
        yield from _would_join(condition, rules, now, clear=not against)
    if SPARED in reasons:
        yield "it would be ejected if fewer of its pool were bad"
    if DISBELIEVED in reasons:
        yield "it would be ejected if requests or checks failed there too, or if agents condemned fewer of its pool"
    if CALMING in reasons:
        yield f"it is let off after {max(0.0, rules.calm_seconds - (now - condition.disputed_at)):.0f} s of calm"
    if status is HealthStatus.WARMING:
        yield f"it has its whole share in {max(0.0, condition.warm_from + rules.warm_up_seconds - now):.0f} s"
    if status is HealthStatus.HEALTHY:
        yield "a failed connection three times in a row, an open breaker, a GPU agent or a failed check would eject it"


def _would_join(condition: Condition, rules: HealthRules, now: float, *, clear: bool) -> Iterator[str]:
    if not condition.showed:
        sign = "that it is ready, by its metrics or a check" if condition.awaits == ANY else f"it by {condition.awaits}"
        yield f"it gets its share over {rules.warm_up_seconds:.0f} s once it has shown {sign}"
    if clear:
        yield f"it is waited for {max(0.0, condition.awaited_from + rules.ready_seconds - now):.0f} s more"
