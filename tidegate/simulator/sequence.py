"""One request on its way through an engine: what is asked, how far it is, and what comes back."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tidegate.simulator.stats import FinishReason, Milestones


@dataclass(frozen=True, slots=True)
class EngineRequest:
    """One sequence to compute.

    Attributes:
        id: unique among the live ones.
        prompt_tokens: tokens to prefill, 1 or more.
        output_tokens: tokens that the answer will have; 0 for prefill alone, as embeddings need.
        max_tokens: the limit that the request set; an answer that reaches it ends for its length.
        block_keys: for each full block of prompt and answer, from the start, what stands for everything up to its end
            (see ``kv_cache``). Blocks beyond the given ones are not remembered.
    """

    id: str
    prompt_tokens: int
    output_tokens: int
    max_tokens: int
    block_keys: Sequence[Hashable] = ()


class Finished(NamedTuple):
    """A request that got all its tokens; ``cached_tokens`` of its prompt needed no prefill."""

    id: str
    reason: FinishReason
    cached_tokens: int


class StepOutcome(NamedTuple):
    """What a step brought.

    Attributes:
        duration: seconds that the engine took.
        tokens: ids of the requests that got one token each.
        finished: the requests that ended with it.
        preempted: ids of the requests that lost their blocks when it began.
    """

    duration: float
    tokens: tuple[str, ...]
    finished: tuple[Finished, ...]
    preempted: tuple[str, ...]


class SequenceState:
    """A request inside the engine.

    Attributes:
        blocks: of the KV cache, in the order of its tokens.
        computed: tokens whose KV is there.
        generated: tokens that the answer has so far.
        cached: prompt tokens found in the cache when it was first admitted.
        live: neither finished nor aborted.
    """

    __slots__ = ("blocks", "cached", "computed", "generated", "live", "preemptions", "request", "times")

    def __init__(self, request: EngineRequest, now: float) -> None:
        """Begin with ``request``, which arrived at ``now`` (seconds)."""
        self.request = request
        self.times = Milestones(now)
        self.blocks: list[int] = []
        self.computed = 0
        self.generated = 0
        self.cached = 0
        self.preemptions = 0
        self.live = True

    @property
    def known(self) -> int:
        """Tokens of prompt and answer so far: what has to be computed before the next one comes."""
        return self.request.prompt_tokens + self.generated

    @property
    def decoding(self) -> bool:
        """Whether its next step computes just the token that came last."""
        return self.generated > 0 and self.known - self.computed == 1
