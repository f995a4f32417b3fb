"""The section of the configuration about endpoints' health: when one is ejected, for how long, how it comes back."""

from pydantic import Field, model_validator

from tidegate.config_values import Seconds, Section
from tidegate.faults import fault
from tidegate.fleet.health import RULES, HealthRules


class Health(Section):
    """When an endpoint gets less or nothing, and how it comes back. Shares are numbers from 0 to 1."""

    hold_seconds: Seconds = Field(
        RULES.hold_seconds,
        ge=0.0,
        description="How long an endpoint is ejected at least, the first time; it doubles with each further time.",
    )
    max_hold_seconds: Seconds = Field(RULES.max_hold_seconds, ge=0.0, description="The most that it grows to.")
    calm_seconds: Seconds = Field(
        RULES.calm_seconds,
        ge=0.0,
        description="How long nothing must have spoken against an endpoint until it is let off.",
    )
    forgive_seconds: Seconds = Field(
        RULES.forgive_seconds,
        ge=1.0,
        description="For each such time without an ejection one of the earlier ones is forgotten.",
    )
    warm_up_seconds: Seconds = Field(
        RULES.warm_up_seconds,
        ge=0.0,
        description="How long it takes until an endpoint that joins others, or comes back, has its whole share; 0: no "
        "time.",
    )
    least_share: float = Field(
        RULES.least_share,
        ge=0.01,
        le=1.0,
        allow_inf_nan=False,
        description="The share that it begins with, of what it would get otherwise. It is also that of one that would "
        "be ejected if not too many were.",
    )
    degraded_share: float = Field(
        RULES.degraded_share, ge=0.01, le=1.0, allow_inf_nan=False, description="The share of a degraded endpoint."
    )
    max_ejected: float = Field(
        RULES.max_ejected,
        ge=0.0,
        le=1.0,
        allow_inf_nan=False,
        description="The most of a pool's endpoints that are ejected at once.",
    )
    max_ejected_by_agents: float = Field(
        RULES.max_ejected_on_hearsay,
        ge=0.0,
        le=1.0,
        allow_inf_nan=False,
        description="When GPU agents alone condemn more than this share of a pool, and more than one endpoint, they "
        "are not believed.",
    )
    panic: float = Field(
        RULES.panic,
        ge=0.0,
        le=1.0,
        allow_inf_nan=False,
        description="When more than this share of a pool looks bad, nobody is ejected: the fault is elsewhere.",
    )

    @model_validator(mode="after")
    def _in_order(self) -> "Health":
        if self.max_hold_seconds < self.hold_seconds:
            raise fault("expected max_hold_seconds of at least hold_seconds")
        if self.least_share > self.degraded_share:
            # It is also the share of those that would be ejected, which are no better than the degraded.
            raise fault("expected degraded_share of at least least_share")
        return self

    @property
    def rules(self) -> HealthRules:
        """The same as the fleet has it."""
        return HealthRules(
            hold_seconds=self.hold_seconds,
            max_hold_seconds=self.max_hold_seconds,
            calm_seconds=self.calm_seconds,
            forgive_seconds=self.forgive_seconds,
            warm_up_seconds=self.warm_up_seconds,
            least_share=self.least_share,
            degraded_share=self.degraded_share,
            max_ejected=self.max_ejected,
            max_ejected_on_hearsay=self.max_ejected_by_agents,
            panic=self.panic,
        )
