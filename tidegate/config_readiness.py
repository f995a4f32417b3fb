"""How an endpoint that joins others shows that it is ready, as the configuration writes it."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Literal

from pydantic import Field

from tidegate.config_checks import Check
from tidegate.config_values import Seconds, Section
from tidegate.fleet.condition import ANY, METRICS
from tidegate.fleet.health import RULES, HealthRules


class Readiness(Section):
    """What an endpoint that joins others waits for until it gets requests."""

    check: Literal["any", "metrics", "tcp", "http", "model_loaded", "inference", "none"] = Field(
        "any",
        description="The sign that it is ready. `metrics`: it says how busy it is (with the engine `none`: it takes a "
        "connection). A check of the pool's `checks`: it passes. `any`: one of these. `none`: it needs none.",
    )
    timeout_seconds: Seconds = Field(
        RULES.ready_seconds,
        ge=0.0,
        description="How long that is waited for: an engine that gives no sign gets requests then, unless something "
        "speaks against it.",
    )

    @property
    def sign(self) -> str:
        """The sign, as the fleet has it; empty for none."""
        return "" if self.check == "none" else self.check


def rules(health: HealthRules, readiness: Readiness) -> HealthRules:
    """Return the rules of a pool's ``health`` with those of its ``readiness``."""
    return replace(health, ready_by=readiness.sign, ready_seconds=readiness.timeout_seconds)


def unshown(pools: Iterable[tuple[Readiness, Sequence[Check]]]) -> Iterator[str]:
    """Yield a line for each sign that nobody would give."""
    for at, (readiness, checks) in enumerate(pools):
        if readiness.sign not in {"", ANY, METRICS, *(check.name for check in checks)}:
            yield f"pools[{at}].readiness.check: expected any, metrics, none or one of the pool's checks"
