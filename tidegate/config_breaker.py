"""When an endpoint that fails its requests is left alone, as the configuration writes it."""

from pydantic import Field, model_validator

from tidegate.config_values import Seconds, Section
from tidegate.faults import fault
from tidegate.fleet.breaker import BreakerRules

_RULES = BreakerRules()


class Breaker(Section):
    """When an endpoint that fails its requests is left alone, and for how long."""

    enabled: bool = Field(default=True, description="Whether it is.")
    consecutive: int = Field(
        int(_RULES.consecutive),
        ge=1,
        le=1000,
        description="Failures in a row after which it is. No answer in time and a stream that stands still count as "
        "two, out of memory as three, and an engine that says it is dead as enough.",
    )
    share: float = Field(
        _RULES.share, ge=0.01, le=1.0, allow_inf_nan=False, description="Share of the recent requests, likewise."
    )
    volume: int = Field(_RULES.volume, ge=1, le=100_000, description="Fewest recent requests of which that is taken.")
    window_seconds: Seconds = Field(
        _RULES.window_seconds, ge=1.0, description="How long a request is recent, at least; at most twice as long."
    )
    open_seconds: Seconds = Field(
        _RULES.open_seconds,
        ge=0.1,
        description="How long it is left alone the first time, and up to a quarter longer; twice as long each further "
        "time.",
    )
    max_open_seconds: Seconds = Field(_RULES.max_open_seconds, ge=0.1, description="The most that this grows to.")
    successes: int = Field(
        _RULES.successes,
        ge=1,
        le=100,
        description="Requests in a row, one at a time, that it has to serve after that until it gets its share again.",
    )

    @model_validator(mode="after")
    def _in_order(self) -> "Breaker":
        if self.max_open_seconds < self.open_seconds:
            raise fault("expected max_open_seconds of at least open_seconds")
        return self

    @property
    def rules(self) -> BreakerRules | None:
        """What that is for the fleet; ``None`` where no endpoint is left alone."""
        if not self.enabled:
            return None
        return BreakerRules(
            self.consecutive,
            self.share,
            self.volume,
            self.window_seconds,
            self.open_seconds,
            self.max_open_seconds,
            self.successes,
        )
