"""How much of a request an endpoint's VRAM still has room for, as its GPU agent reports it.

How full VRAM is says nothing by itself: engines that set their KV cache aside when they start look full for ever.
Theirs is judged only once something has grown beyond what they held when they were loaded, and little is left: what is
taken then is what they need while they compute, and a large prompt needs more of it than a small one. Of engines that
take memory as requests come, what is free is the room.
"""

from typing import Final, Literal, NamedTuple

Judged = Literal["auto", "growth", "headroom", "ignore"]
"""How VRAM is judged (``Vram.room``)."""

PREALLOCATING: Final = frozenset({"vllm", "sglang", "tgi", "trtllm", "llamacpp"})
"""The engines, by their metrics dialects, that set their KV cache aside when they start."""

GROWN_SHARE = 0.02
"""Of all VRAM: what such an engine may take beyond its start, for workspaces and buffers that are made when they are
first needed."""

LEFT_SHARE = 0.05
"""Of all VRAM: with so much left growth is no danger."""


class GpuMemory(NamedTuple):
    """The VRAM of the GPUs that an endpoint runs on, all of them together.

    Attributes:
        total_bytes: all of it.
        free_bytes: what requests can still take: they take the same on each GPU, so the fullest one counts for all.
        valid_seconds: for how long that counts.
    """

    total_bytes: int
    free_bytes: int
    valid_seconds: float


class Vram(NamedTuple):
    """What is known of an endpoint's VRAM.

    Attributes:
        memory: as reported last; ``None`` is unknown.
        reported_at: when, in seconds.
        own_tokens: tokens of ours that were in flight there then.
        baseline_bytes: the least that was in use since its engine was loaded; ``None`` while that is not known.
    """

    memory: GpuMemory | None = None
    reported_at: float = 0.0
    own_tokens: int = 0
    baseline_bytes: int | None = None

    def taken(self, memory: GpuMemory, own_tokens: int, now: float, *, loaded: bool) -> "Vram":
        """Return what is known after ``memory`` was reported at ``now`` (seconds); what cannot be true says nothing.

        ``own_tokens`` are in flight there now, and ``loaded`` says that the engine reports what it does.
        """
        if not 0 <= memory.free_bytes <= memory.total_bytes or memory.total_bytes == 0:
            return self
        used, baseline = memory.total_bytes - memory.free_bytes, self.baseline_bytes
        if loaded:
            baseline = used if baseline is None else min(baseline, used)
        return Vram(memory, now, own_tokens, baseline)

    def unloaded(self) -> "Vram":
        """Return what is known once the engine has begun anew, or is gone: not what it will hold when it is loaded."""
        return self._replace(baseline_bytes=None)

    def room(self, own_tokens: int, kv_bytes: float, now: float, *, preallocated: bool) -> float | None:
        """Return for how many more tokens there is room at ``now`` (seconds); ``None`` where VRAM is no reason.

        Args:
            own_tokens: tokens of ours that are in flight there now.
            kv_bytes: bytes that the KV cache of one token takes.
            now: the moment.
            preallocated: the engine's KV cache has its memory already.
        """
        memory = self.memory
        if memory is None or now - self.reported_at > memory.valid_seconds:
            return None
        if preallocated:
            grown = memory.total_bytes - memory.free_bytes - (self.baseline_bytes or 0)
            plenty = memory.free_bytes > LEFT_SHARE * memory.total_bytes
            if self.baseline_bytes is None or plenty or grown <= GROWN_SHARE * memory.total_bytes:
                return None
            return memory.free_bytes / kv_bytes
        # What was sent since is not in the figure yet.
        return max(0.0, memory.free_bytes / kv_bytes - max(0, own_tokens - self.own_tokens))


UNKNOWN: Final = Vram()


def preallocated(judged: Judged, engine: str, kv_capacity_tokens: float | None) -> bool:
    """Return whether an endpoint is judged by growth: as ``judged`` says, else by its engine and what that reports."""
    if judged == "auto":
        return engine in PREALLOCATING or kv_capacity_tokens is not None
    return judged == "growth"
