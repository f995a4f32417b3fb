"""A model of an engine with continuous batching that jumps from one change of its batch to the next.

It does what ``tidegate.simulator.batching`` does, step for step and to the same times, but a run of steps in which
nobody comes and nobody goes is one event (``decode``): its length is a sum that has a closed form. A step with prefill
in it is an event of its own, whatever the size of the batch.

Why one request at most is ever half prefilled, and is the youngest in the batch: another one is admitted only when the
step has tokens left, and then the half prefilled one has got all it lacked.
"""

import math
from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from tidegate.fleet.load import EngineReport
from tidegate.simulator.batching import QueueFullError
from tidegate.simulator.profiles import BLOCK_SIZE, Profile
from tidegate.simulator.virtual.blocks import BlockStore, blocks_for
from tidegate.simulator.virtual.decode import DecodeGroup
from tidegate.simulator.virtual.job import Job

DEFAULT_MAX_MODEL_LEN = 131_072
"""Llama 3.1's own limit, in tokens."""


class TooLongError(Exception):
    """Prompt and answer do not fit what the engine can hold at all."""


class _Run(NamedTuple):
    """``steps`` steps from ``start``: number k of them, from 0, takes ``first + k * growth`` seconds."""

    start: float
    steps: int
    first: float
    growth: float
    work: tuple[tuple[Job, int], ...]
    taken: int

    def until(self, steps: int) -> float:
        """Return when ``steps`` of them are over."""
        return self.start + steps * self.first + self.growth * (steps * (steps - 1) / 2)

    def steps_over(self, now: float) -> int:
        """Return how many of them are over at ``now``."""
        elapsed = now - self.start
        if self.steps == 1 or elapsed < self.first:
            return 0 if now < self.until(self.steps) else self.steps
        linear = self.first - self.growth / 2
        # The root of growth/2 k^2 + linear k = elapsed, in the form that is stable where growth is close to 0.
        steps = int(2 * elapsed / (linear + math.sqrt(linear * linear + 2 * self.growth * elapsed)))
        while steps < self.steps and self.until(steps + 1) <= now:
            steps += 1
        while steps > 0 and self.until(steps) > now:
            steps -= 1
        return min(steps, self.steps)


class VirtualEngine:
    """One engine. Whoever drives it calls ``advance`` at ``next_event``; times are seconds on the virtual clock.

    Attributes:
        profile: its speed and limits.
        max_model_len: longest prompt and answer together, in tokens.
        store: its KV cache.
        decoding: the requests that are generating.
        waiting: those that are not in the batch.
        running: those that are, in the order of their admission.
        prefilling: the one of them whose prompt is half computed.
        next_event: when ``advance`` is to be called; ``None`` while there is nothing to do.
        prompt_tokens: prompt tokens processed since its start.
        generation_tokens: tokens generated since its start, as of the last event.
        preemptions: how often a request lost its blocks.
        slow: by how much every step takes longer.
        frozen: no step is begun.
    """

    def __init__(self, profile: Profile, max_model_len: int = DEFAULT_MAX_MODEL_LEN, max_queue: int = 1_024) -> None:
        """Start an idle engine.

        Args:
            profile: its speed and limits.
            max_model_len: longest prompt and answer together, in tokens, as far as the KV cache holds them.
            max_queue: requests it accepts beyond a full batch.

        Raises:
            ValueError: the batch could take more requests than a step has tokens.
        """
        if profile.max_num_seqs > profile.max_num_batched_tokens:
            raise ValueError("a step needs a token for every request in the batch")
        self.profile = profile
        self.max_model_len = min(max_model_len, profile.kv_tokens)
        self.store = BlockStore(profile.num_gpu_blocks - 1)
        self.decoding = DecodeGroup()
        self.waiting: deque[Job] = deque()
        self.running: dict[Job, None] = {}
        self.prefilling: Job | None = None
        self.next_event: float | None = None
        self.prompt_tokens = 0
        self.generation_tokens = 0
        self.preemptions = 0
        self._max_requests = profile.max_num_seqs + max_queue
        self._run: _Run | None = None
        self.slow = 1.0
        self.frozen = False

    def submit(self, job: Job, now: float) -> None:
        """Take in ``job`` at ``now``.

        Raises:
            TooLongError: it can never be served.
            QueueFullError: the engine holds too many already.
        """
        if job.prompt_tokens + job.output_tokens > self.max_model_len:
            raise TooLongError
        if len(self.running) + len(self.waiting) >= self._max_requests:
            raise QueueFullError
        job.arrived = now
        self.waiting.append(job)
        if self._run is None:
            if not self.frozen:
                self.next_event = now
        elif len(self.waiting) == 1:  # others that wait already cannot be admitted before somebody ends
            self._cut(now)

    def advance(self, now: float) -> list[Job]:
        """End what is over at ``now``, which is ``next_event``, and begin what comes next; return who finished."""
        over = self._complete(now) if self._run is not None else []
        self._begin(now)
        return over

    def set_slow(self, factor: float, now: float) -> None:
        """Let every step that begins from now on take ``factor`` times as long."""
        self.slow = factor
        self._cut(now)

    def freeze(self, now: float) -> None:
        """Begin no further step."""
        self.frozen = True
        self._cut(now)

    def thaw(self, now: float) -> None:
        """Go on."""
        self.frozen = False
        if self._run is None and (self.running or self.waiting):
            self.next_event = now

    def jobs(self) -> Iterator[Job]:
        """Iterate over all requests in it, those of the batch first."""
        yield from self.running
        yield from self.waiting

    def remaining(self, job: Job) -> int:
        """Return how many tokens of its answer ``job``, which is in this engine, still lacks; exact between runs."""
        return self.decoding.remaining(job) if job.ends >= 0 else job.output_tokens - job.generated

    def busy_until(self, now: float) -> float:
        """Return when the step under way at ``now`` ends: before that, nothing new begins."""
        return now if self._run is None else self._run.until(min(self._run.steps_over(now) + 1, self._run.steps))

    @property
    def kv_usage(self) -> float:
        """Share of the KV cache that is held, 0 to 1, as of the last event."""
        return 1.0 - self.store.free / self.store.total

    def report(self, now: float) -> EngineReport:
        """Return what a scrape at ``now`` finds."""
        steps = self._run.steps_over(now) if self._run else 0
        free = self.store.free
        if self._run and steps > 1:
            free -= self.decoding.blocks_for_steps(steps) - self._run.taken
        return EngineReport(
            running=len(self.running),
            waiting=len(self.waiting),
            kv_usage=1.0 - free / self.store.total,
            kv_capacity_tokens=self.profile.num_gpu_blocks * BLOCK_SIZE,
            prompt_tokens_total=self.prompt_tokens,
            generation_tokens_total=self.generation_tokens + steps * self.decoding.size,
        )

    def _cut(self, now: float) -> None:
        """Let the run under way end with the step under way."""
        run = self._run
        if run is not None and run.steps > 1:
            steps = min(run.steps_over(now) + 1, run.steps)
            # Two at the same instant, a step's end and an arrival: the step is over, and the next one takes it in.
            if steps > 1 and run.until(steps - 1) >= now:
                steps -= 1
            self._run = run._replace(steps=steps)
            self.next_event = run.until(steps)

    def _complete(self, now: float) -> list[Job]:
        run, self._run = self._run, None
        if run is None:
            return []
        group = self.decoding
        if run.steps > 1:
            self.store.take(group.blocks_for_steps(run.steps) - run.taken)
        self.generation_tokens += run.steps * group.size
        over = group.advance(run.steps)
        for job, tokens in run.work:
            job.computed += tokens
            if job.computed < job.known:
                continue
            self._prefilled(job, now)
            if job.generated >= job.output_tokens:
                over.append(job)
            else:
                group.join(job)
        for job in over:
            self._finish(job, now)
        return over

    def _prefilled(self, job: Job, now: float) -> None:
        if self.prefilling is job:
            self.prefilling = None
        if job.first_token is None:
            job.first_token = now
            self.prompt_tokens += job.prompt_tokens
        if job.output_tokens:
            job.generated += 1
            self.generation_tokens += 1

    def _finish(self, job: Job, now: float) -> None:
        job.finished = now
        del self.running[job]
        # The last token of an answer is never computed: nothing comes after it.
        computed = job.known - 1 if job.output_tokens else job.known
        self._publish(job, computed)
        self.store.release(job.held_privately(computed), job.units, job.unit_blocks)

    def _begin(self, now: float) -> None:
        self.next_event = None
        if self.frozen:
            return
        group, store = self.decoding, self.store
        preempted = False
        while (needed := group.blocks_for_steps(1)) > store.free:
            self._preempt()
            preempted = True
        store.take(needed)
        work: list[tuple[Job, int]] = []
        budget = self.profile.max_num_batched_tokens - group.size
        if self.prefilling is not None:
            tokens = min(self.prefilling.known - self.prefilling.computed, budget)
            if self._extend(self.prefilling, tokens):
                work.append((self.prefilling, tokens))
                budget -= tokens
            else:
                self._preempt()
                preempted = True
        if not preempted:
            self._admit(work, budget)
        if not group.size and not work:
            return
        steps = 1
        if not work and not preempted:
            steps = min(group.steps_to_first_end(), group.steps_within(store.free + needed))
        prefill = sum(tokens for _, tokens in work)
        first = self.profile.step_seconds(prefill, group.size, group.context) * self.slow
        growth = group.size * self.profile.context_token_seconds * self.slow
        self._run = _Run(now, steps, first, growth, tuple(work), needed)
        self.next_event = self._run.until(steps)

    def _admit(self, work: list[tuple[Job, int]], budget: int) -> None:
        store = self.store
        while self.waiting and budget and len(self.running) < self.profile.max_num_seqs:
            job = self.waiting[0]
            known = job.known
            found = 0
            if job.keys:
                # The last token is always computed: it is what the next one comes from.
                found = store.match(job.keys[: (known - 1) // job.unit_tokens])
            reused = job.keys[:found]
            if not store.fits(reused, job.unit_blocks, blocks_for(known) - found * job.unit_blocks):
                return
            self.waiting.popleft()
            store.hold(reused)
            job.units = list(reused)
            job.decided = found
            job.computed = found * job.unit_tokens
            tokens = min(known - job.computed, budget)
            self._extend(job, tokens)
            self.running[job] = None
            work.append((job, tokens))
            budget -= tokens
            if tokens < known - job.computed:
                self.prefilling = job
            if job.cached is None:
                job.cached = job.computed

    def _extend(self, job: Job, tokens: int) -> bool:
        """Give ``job`` the blocks that ``tokens`` more need; return whether there were enough."""
        until = job.computed + tokens
        fresh = blocks_for(until) - blocks_for(job.computed)
        if fresh > self.store.free:
            return False
        self.store.take(fresh)
        self._publish(job, until)
        return True

    def _publish(self, job: Job, computed: int) -> None:
        """Let the units of ``job`` that lie within its first ``computed`` tokens be found."""
        if not job.keys:
            return
        full = min(computed // job.unit_tokens, len(job.keys))
        for key in job.keys[job.decided : full]:
            if self.store.publish(key):
                job.units.append(key)
        job.decided = max(job.decided, full)

    def _preempt(self) -> None:
        """Take its blocks from the youngest in the batch; it is computed anew later."""
        job, _ = self.running.popitem()
        if job is self.prefilling:
            self.prefilling = None
            computed = job.computed
        else:
            self.decoding.leave(job)
            computed = job.known - 1
        self.store.release(job.held_privately(computed), job.units, job.unit_blocks)
        job.reset()
        job.preemptions += 1
        self.preemptions += 1
        self.waiting.appendleft(job)
