"""Splits and rollouts as the configuration file writes them."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from tidegate.config_values import HeaderName, PoolName, RewrittenModel, Seconds, Section
from tidegate.faults import fault
from tidegate.scheduling import rollout, splits

MAX_SIDES = 16
MAX_STEPS = 32

Percent = Annotated[float, Field(gt=0, le=100, allow_inf_nan=False)]


class Side(Section):
    """A pool, and its share."""

    pool: PoolName = Field(description="Where these requests go.")
    weight: float = Field(
        1,
        ge=0,
        le=1_000_000,
        allow_inf_nan=False,
        description="Its share, in proportion to the others'. Where there is a `rollout`, that says.",
    )
    rewrite_model: RewrittenModel | None = Field(
        None, description="The name by which its engines are asked for the model, in place of the route's."
    )


class Sticky(Section):
    """By what requests stay on the side where those like them were: one of `by` and `header`."""

    by: Literal["session", "tenant"] | None = Field(None, description="Their session, or their tenant.")
    header: HeaderName | None = Field(
        None, description="The header whose value says it, in lower case; a user's id, for example."
    )

    @model_validator(mode="after")
    def _one(self) -> "Sticky":
        if (self.by is None) == (self.header is None):
            raise fault("expected one of by and header")
        return self


class Rollout(Section):
    """A canary that gets more as long as it does as well as the other pool, and nothing once it does not."""

    canary: PoolName = Field(description="Which of the two pools it is.")
    steps: tuple[Percent, ...] = Field(
        (5, 25, 50, 100),
        min_length=1,
        max_length=MAX_STEPS,
        description="Its shares of all requests, in percent, one after the other. After the last one it gets all.",
    )
    pause_seconds: Seconds = Field(300, ge=1, description="How long each step lasts at least.")
    min_requests: int = Field(50, ge=1, le=1_000, description="Requests of the canary that each step needs at least.")
    max_error_percent: float = Field(
        2,
        ge=0,
        le=100,
        allow_inf_nan=False,
        description="How many of a hundred of its requests may fail beyond those of the other pool.",
    )
    max_ttft_ratio: float = Field(
        1.25,
        ge=1,
        le=100,
        allow_inf_nan=False,
        description="How long its times to the first token may be, as a multiple of the other pool's (p50 and p90).",
    )
    max_tpot_ratio: float = Field(
        1.25, ge=1, le=100, allow_inf_nan=False, description="Likewise for the time between tokens."
    )

    @model_validator(mode="after")
    def _growing(self) -> "Rollout":
        if list(self.steps) != sorted(set(self.steps)):
            raise fault("expected steps that grow")
        return self

    @property
    def plan(self) -> rollout.Plan:
        """The plan that is kept to."""
        limits = rollout.Limits(
            self.min_requests, self.max_error_percent / 100, self.max_ttft_ratio, self.max_tpot_ratio
        )
        return rollout.Plan(tuple(step / 100 for step in self.steps), self.pause_seconds, limits)


def split(sides: tuple[Side, ...], sticky: Sticky | None) -> splits.Split:
    """Return the split that decisions keep to."""
    by = "" if sticky is None else sticky.by or f":{sticky.header}"
    return splits.Split(tuple(splits.Side(side.pool, side.weight, side.rewrite_model or "") for side in sides), by)
