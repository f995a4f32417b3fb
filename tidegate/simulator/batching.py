"""A model of an engine with continuous batching, after vLLM's scheduler: no clock, no randomness, no I/O.

The engine works in steps. ``begin`` decides what the next step computes and says how long that takes; ``complete``
hands out its results. Between the two, requests may arrive and be aborted. ``step`` does both at once, for a clock that
can be turned forward.

A step first serves the requests in the batch, in their order, each with one token of decoding or as many of its prompt
as the step has left (chunked prefill); then it admits waiting ones, first come, first served. When the KV cache runs
out, the youngest request in the batch loses its blocks, goes back to the head of the queue and is computed anew later.
"""

from collections import deque
from collections.abc import Sequence
from itertools import islice
from typing import NamedTuple

from tidegate.simulator.kv_cache import KVCache
from tidegate.simulator.profiles import BLOCK_SIZE, Profile
from tidegate.simulator.sequence import EngineRequest, Finished, SequenceState, StepOutcome
from tidegate.simulator.stats import Counters, FinishReason, Gauges


class QueueFullError(Exception):
    """The engine holds as many requests as it may."""


class _Step(NamedTuple):
    duration: float
    work: tuple[tuple[SequenceState, int], ...]
    preempted: tuple[str, ...]


def _blocks_for(tokens: int) -> int:
    return -(-tokens // BLOCK_SIZE)


class BatchingEngine:
    """One engine. All times are seconds on the caller's clock."""

    def __init__(self, profile: Profile, max_model_len: int, max_queue: int) -> None:
        """Start an idle engine.

        Args:
            profile: its speed and limits.
            max_model_len: longest prompt and answer together, in tokens.
            max_queue: requests it accepts beyond a full batch.

        Raises:
            ValueError: the KV cache cannot hold one request of ``max_model_len``, or a limit is out of range.
        """
        if not 1 <= max_model_len <= profile.kv_tokens:
            raise ValueError(f"max_model_len must be from 1 to the KV cache's {profile.kv_tokens} tokens")
        if max_queue < 0:
            raise ValueError("max_queue must not be negative")
        self.counters = Counters(max_model_len)
        self._profile = profile
        self._max_model_len = max_model_len
        self._max_requests = profile.max_num_seqs + max_queue
        self.cache = KVCache(profile.num_gpu_blocks - 1)
        self._running: list[SequenceState] = []
        self._waiting: deque[SequenceState] = deque()
        self._live: dict[str, SequenceState] = {}
        self._step: _Step | None = None

    @property
    def gauges(self) -> Gauges:
        """What the engine holds at this moment."""
        return Gauges(len(self._running), len(self._waiting), self.cache.usage)

    def submit(self, requests: Sequence[EngineRequest], now: float) -> None:
        """Take in ``requests`` at ``now``, all or none.

        Raises:
            QueueFullError: the engine holds too many already; it counts as one rejection.
            ValueError: one of them can never be served, or its id is live.
        """
        for request in requests:
            if not 1 <= request.prompt_tokens <= self._max_model_len - request.output_tokens:
                raise ValueError("prompt and answer must fit max_model_len")
            if not 0 <= request.output_tokens <= request.max_tokens or request.id in self._live:
                raise ValueError("output_tokens must be from 0 to max_tokens, and ids unique")
        if len(self._live) + len(requests) > self._max_requests:
            self.counters.rejections += 1
            raise QueueFullError
        for request in requests:
            sequence = self._live[request.id] = SequenceState(request, now)
            self._waiting.append(sequence)

    def abort(self, request_id: str) -> bool:
        """Forget a request at once; return whether it was live. As in vLLM, nothing counts it as finished."""
        sequence = self._live.pop(request_id, None)
        if sequence is None:
            return False
        sequence.live = False
        if sequence in self._running:
            self._running.remove(sequence)
        else:
            self._waiting.remove(sequence)
        self.cache.release(sequence.blocks)
        return True

    def begin(self, now: float) -> float | None:
        """Begin a step at ``now``; return its duration in seconds, or ``None`` when there is nothing to do.

        Raises:
            RuntimeError: the last step was not completed.
        """
        if self._step is not None:
            raise RuntimeError("a step is under way")
        work: list[tuple[SequenceState, int]] = []
        preempted = self._continue_running(work)
        if not preempted:
            self._admit_waiting(work, now)
        if not work:
            return None
        decoding = [sequence for sequence, _ in work if sequence.decoding]
        prefill = sum(tokens for _, tokens in work) - len(decoding)
        context = sum(sequence.known for sequence in decoding)
        duration = self._profile.step_seconds(prefill, len(decoding), context)
        self._step = _Step(duration, tuple(work), tuple(preempted))
        return duration

    def complete(self, now: float) -> StepOutcome:
        """End the step under way at ``now``.

        Raises:
            RuntimeError: no step was begun.
        """
        if self._step is None:
            raise RuntimeError("no step is under way")
        step, self._step = self._step, None
        got: list[str] = []
        finished: list[Finished] = []
        for sequence, tokens in step.work:
            if not sequence.live:
                continue
            sequence.computed += tokens
            if sequence.computed < sequence.known:
                continue
            if sequence.generated == 0:
                self._count_prompt(sequence)
            if sequence.request.output_tokens:
                sequence.generated += 1
                sequence.times.token(now, self.counters)
                got.append(sequence.request.id)
            if sequence.generated == sequence.request.output_tokens:
                finished.append(self._finish(sequence, now))
        self.counters.generation_tokens += len(got)
        self.counters.step_tokens.observe(sum(tokens for _, tokens in step.work))
        return StepOutcome(step.duration, tuple(got), tuple(finished), step.preempted)

    def step(self, now: float) -> StepOutcome | None:
        """Do a whole step that begins at ``now``; ``None`` when there is nothing to do."""
        duration = self.begin(now)
        return None if duration is None else self.complete(now + duration)

    def _continue_running(self, work: list[tuple[SequenceState, int]]) -> list[str]:
        """Plan for the requests in the batch, preempting the youngest while blocks lack; return the preempted."""
        budget = self._profile.max_num_batched_tokens
        preempted: list[str] = []
        at = 0
        while at < len(self._running) and budget:
            sequence = self._running[at]
            tokens = min(sequence.known - sequence.computed, budget)
            if self._extend(sequence, tokens):
                work.append((sequence, tokens))
                budget -= tokens
                at += 1
            else:
                # The victim may be this very request; it never is one that is planned already, for those are older.
                preempted.append(self._preempt(self._running.pop()))
        return preempted

    def _admit_waiting(self, work: list[tuple[SequenceState, int]], now: float) -> None:
        """Plan for waiting requests in their order, until the batch, the step or the KV cache is full."""
        budget = self._profile.max_num_batched_tokens - sum(tokens for _, tokens in work)
        while self._waiting and budget and len(self._running) < self._profile.max_num_seqs:
            sequence = self._waiting[0]
            # The last token is always computed: it is what the next one comes from.
            reusable = min(len(sequence.request.block_keys), (sequence.known - 1) // BLOCK_SIZE)
            reused = self.cache.match(islice(sequence.request.block_keys, reusable))
            found = len(reused) * BLOCK_SIZE
            # Admitted only when all of it fits now (vLLM's scheduler_reserve_full_isl), or long prompts would start
            # in chunks and throw one another out.
            if not self.cache.fits(reused, _blocks_for(sequence.known) - len(reused)):
                return
            tokens = min(sequence.known - found, budget)
            self.cache.hold(reused)
            sequence.blocks = reused
            sequence.computed = found
            self._extend(sequence, tokens)
            self._running.append(self._waiting.popleft())
            work.append((sequence, tokens))
            budget -= tokens
            if sequence.times.scheduled is None:
                sequence.times.scheduled = now
                sequence.cached = found
                self.counters.prefix_queries += sequence.known
                self.counters.prefix_hits += found

    def _extend(self, sequence: SequenceState, tokens: int) -> bool:
        """Give ``sequence`` the blocks that ``tokens`` more need; return whether there were enough."""
        until = sequence.computed + tokens
        fresh = self.cache.take(_blocks_for(until) - len(sequence.blocks))
        if fresh is None:
            return False
        sequence.blocks += fresh
        keys = sequence.request.block_keys
        # Found from now on, not only when the step ends: requests admitted in one step share their prefix, as in vLLM.
        for at in range(sequence.computed // BLOCK_SIZE, min(until // BLOCK_SIZE, len(keys))):
            self.cache.publish(sequence.blocks[at], keys[at])
        return True

    def _preempt(self, sequence: SequenceState) -> str:
        self.cache.release(sequence.blocks)
        sequence.blocks = []
        sequence.computed = 0
        sequence.preemptions += 1
        self.counters.preemptions += 1
        self._waiting.appendleft(sequence)
        return sequence.request.id

    def _count_prompt(self, sequence: SequenceState) -> None:
        self.counters.prompt_tokens += sequence.request.prompt_tokens
        self.counters.cached_prompt_tokens += sequence.cached

    def _finish(self, sequence: SequenceState, now: float) -> Finished:
        request, counters = sequence.request, self.counters
        del self._live[request.id]
        self._running.remove(sequence)
        self.cache.release(sequence.blocks)
        at_limit = 0 < request.output_tokens == request.max_tokens
        reason = FinishReason.LENGTH if at_limit else FinishReason.STOP
        counters.finished[reason] += 1
        sequence.times.end(now, sequence.generated, counters)
        counters.request_prompt_tokens.observe(request.prompt_tokens)
        counters.request_generation_tokens.observe(sequence.generated)
        counters.request_max_tokens.observe(request.max_tokens)
        counters.computed_prompt_tokens.observe(request.prompt_tokens - sequence.cached)
        counters.request_preemptions.observe(sequence.preemptions)
        return Finished(request.id, reason, sequence.cached)
