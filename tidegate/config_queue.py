"""The section of the configuration about a pool's queue."""

from collections.abc import Iterable, Mapping

from pydantic import Field, model_validator

from tidegate.config_values import Section
from tidegate.faults import fault
from tidegate.scheduling.line import QueueSettings
from tidegate.scheduling.queue import UNBOUNDED, Bounds

MOST_SECONDS = 600.0
"""The longest that a request may wait: clients of OpenAI's give up after ten minutes."""


class Queue(Section):
    """Where requests wait that find no room in their pool, instead of being sent to an engine that is full.

    It needs to be known how much an endpoint takes: its size of KV cache, which most engines report, or `max_running`.
    """

    enabled: bool = Field(
        default=True,
        description="Whether requests wait; otherwise they go to whoever is left, and wait in the engine.",
    )
    max_requests: int = Field(1_000, ge=1, le=100_000, description="How many may wait.")
    max_tokens: int = Field(
        50_000_000, ge=1, le=1_000_000_000_000, description="How many tokens those may have, with their answers."
    )
    max_bytes: int = Field(268_435_456, ge=1024, le=17_179_869_184, description="How large their bodies may be.")
    max_requests_per_tenant: int | None = Field(
        None, ge=1, le=100_000, description="How many of one tenant may wait; as many as there may be by default."
    )
    max_tokens_per_tenant: int | None = Field(
        None, ge=1, le=1_000_000_000_000, description="How many tokens those may have, likewise."
    )
    max_wait_seconds: float = Field(
        30.0, ge=0.01, le=MOST_SECONDS, allow_inf_nan=False, description="How long a request may wait, at the most."
    )
    batch_max_wait_seconds: float = Field(
        300.0,
        ge=0.01,
        le=MOST_SECONDS,
        allow_inf_nan=False,
        description="How long a request of batch work may, which is one with a priority below 0.",
    )
    batch_share: float = Field(
        0.9,
        ge=0.05,
        le=1.0,
        allow_inf_nan=False,
        description="How much of an endpoint's batch and KV cache batch work may fill.",
    )
    kept_share: float = Field(
        0.15,
        ge=0.0,
        le=0.5,
        allow_inf_nan=False,
        description="The most of a pool's places that are kept free for requests of a higher priority that have yet to "
        "come, out of the others' reach. How many are is learned from how often such requests come; none where they "
        "do not.",
    )
    ageing_seconds: float = Field(
        10.0,
        ge=0.1,
        le=86_400.0,
        allow_inf_nan=False,
        description="After how long a wait a request counts as of the next higher priority; batch work stays what it "
        "is.",
    )
    max_running: int | None = Field(
        None,
        ge=1,
        le=100_000,
        description="The most requests in the batch of an endpoint that does not say so itself. Default: it is learned "
        "from what engines report.",
    )

    @model_validator(mode="after")
    def _within(self) -> "Queue":
        wanted = (
            ("max_requests", self.max_requests, self.max_requests_per_tenant),
            ("max_tokens", self.max_tokens, self.max_tokens_per_tenant),
        )
        for key, most, of_one in wanted:
            if of_one is not None and of_one > most:
                raise fault(f"expected {key}_per_tenant of at most {key}, {most}, not {of_one}")
        return self

    @property
    def longest_seconds(self) -> float:
        """How long any request may wait; 0 where none does."""
        return max(self.max_wait_seconds, self.batch_max_wait_seconds) if self.enabled else 0.0

    def settings(self, weights: Mapping[str, float], processes: int) -> QueueSettings:
        """Return the queue of one of so many ``processes``, which have the bounds between them.

        ``weights`` are the shares of tenants by name.
        """
        of_tenant = (self.max_requests_per_tenant or UNBOUNDED, self.max_tokens_per_tenant or UNBOUNDED)
        bounds = (self.max_requests, self.max_tokens, self.max_bytes, *of_tenant)
        return QueueSettings(
            Bounds(*(-(-bound // processes) for bound in bounds)),
            self.max_wait_seconds,
            self.batch_max_wait_seconds,
            self.ageing_seconds,
            self.batch_share,
            self.max_running,
            tuple(weights.items()),
            kept_share=self.kept_share,
        )


def longest_wait(queues: Iterable[Queue]) -> float:
    """Return how many seconds any request may wait in any of ``queues``; 0 where none does."""
    return max((queue.longest_seconds for queue in queues), default=0.0)
