"""One request inside a virtual engine."""

from collections.abc import Sequence
from typing import Any

from tidegate.simulator.profiles import BLOCK_SIZE
from tidegate.simulator.virtual.blocks import blocks_for


class Job:
    """A request with what an engine keeps of it; times are seconds on the virtual clock, ``None`` until they come.

    Attributes:
        tag: whatever the submitter wants back.
        prompt_tokens: tokens to prefill, 1 or more.
        output_tokens: tokens that the answer will have; 0 for prefill alone.
        keys: for each full unit of prompt and answer, what stands for everything up to its end.
        unit_tokens: tokens in a unit, a multiple of the block size.
        arrived: when the engine took it in.
        first_token: when it got its first token.
        finished: when it got its last one.
        cached: prompt tokens found in the cache when it was first admitted; ``None`` until then.
        generated: tokens it has, as of its last admission or preemption.
        computed: tokens whose KV is there, while it is in prefill.
        preemptions: how often it lost its blocks.
        units: the keys that it holds.
        decided: units that were published or found to be there already.
        phase: at which steps (modulo the block size) of its decode group it needs one more block.
        ends: the step of its decode group that ends it; -1 outside of one.
    """

    __slots__ = (
        *("arrived", "cached", "computed", "decided", "ends", "finished", "first_token", "generated", "keys"),
        *("output_tokens", "phase", "preemptions", "prompt_tokens", "tag", "unit_tokens", "units"),
    )

    def __init__(
        self, prompt_tokens: int, output_tokens: int, keys: Sequence[int] = (), unit_tokens: int = 0, tag: Any = None
    ) -> None:
        """Describe a request.

        Raises:
            ValueError: there are keys, and the unit is no multiple of the block size.
        """
        if keys and (unit_tokens <= 0 or unit_tokens % BLOCK_SIZE):
            raise ValueError(f"a unit of {unit_tokens} tokens; expected a multiple of {BLOCK_SIZE}")
        self.tag = tag
        self.prompt_tokens = prompt_tokens
        self.output_tokens = output_tokens
        self.keys = keys
        self.unit_tokens = unit_tokens
        self.arrived = 0.0
        self.first_token: float | None = None
        self.finished: float | None = None
        self.cached: int | None = None
        self.generated = 0
        self.preemptions = 0
        self.computed = 0
        self.units: list[int] = []
        self.decided = 0
        self.phase = 0
        self.ends = -1

    @property
    def known(self) -> int:
        """Tokens of prompt and answer as of its last admission or preemption."""
        return self.prompt_tokens + self.generated

    @property
    def unit_blocks(self) -> int:
        """Blocks in a unit."""
        return self.unit_tokens // BLOCK_SIZE

    def held_privately(self, computed: int) -> int:
        """Return how many blocks without a key it holds once ``computed`` tokens have their KV."""
        return blocks_for(computed) - len(self.units) * self.unit_blocks

    def reset(self) -> None:
        """Forget what it held."""
        self.units = []
        self.decided = self.computed = 0
        self.ends = -1
