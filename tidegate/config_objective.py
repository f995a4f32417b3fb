"""The section of the configuration that says what a pool is meant to keep, by which its saturation is judged."""

from pydantic import Field

from tidegate.config_values import Section
from tidegate.scheduling import saturation


class Objective(Section):
    """What a pool is meant to keep: by this `tidegate_pool_saturation` says how full it is."""

    ttft_seconds: float | None = Field(
        None,
        ge=0.01,
        le=3_600.0,
        allow_inf_nan=False,
        description="Time to the first token of a typical request at most; without it, that is no part of the figure. "
        "With it, what endpoints work on is reckoned under every policy.",
    )
    waiting: float = Field(
        saturation.WAITING,
        ge=0.1,
        le=100_000.0,
        allow_inf_nan=False,
        description="Requests that may wait for each endpoint, in its engine and in Tidegate.",
    )

    def judged(self) -> saturation.Objective:
        """Return it as decisions know it."""
        return saturation.Objective(self.ttft_seconds, self.waiting)
