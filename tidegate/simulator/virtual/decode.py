"""The requests of an engine that are generating, as one body that moves in lockstep.

Each of them gets a token in every step of the engine, so what a run of steps costs, which blocks it takes and whom it
ends is known in closed form, and nothing is done per token.
"""

import heapq

from tidegate.simulator.profiles import BLOCK_SIZE
from tidegate.simulator.virtual.job import Job


class DecodeGroup:
    """The generating requests.

    Attributes:
        size: how many there are.
        context: the sum of their tokens of prompt and answer so far.
        step: steps done since the engine's start.
    """

    __slots__ = ("_ends", "_order", "_phases", "context", "size", "step")

    def __init__(self) -> None:
        self.size = 0
        self.context = 0
        self.step = 0
        self._phases = [0] * BLOCK_SIZE
        self._ends: list[tuple[int, int, Job]] = []
        self._order = 0

    def join(self, job: Job) -> None:
        """Take in ``job``, which has its first token or its next one after a preemption, and wants more."""
        job.ends = self.step + job.output_tokens - job.generated
        # The step numbered s computes its token number known + s - step, and the first of each block needs that block.
        job.phase = (self.step + 1 - job.known) % BLOCK_SIZE
        self._phases[job.phase] += 1
        self.size += 1
        self.context += job.known
        self._order += 1
        heapq.heappush(self._ends, (job.ends, self._order, job))

    def leave(self, job: Job) -> None:
        """Let ``job`` go; its ``generated`` says how far it has come."""
        job.generated = job.output_tokens - (job.ends - self.step)
        self._phases[job.phase] -= 1
        self.size -= 1
        self.context -= job.known
        job.ends = -1

    def remaining(self, job: Job) -> int:
        """Return how many tokens ``job`` still wants, as of ``step``."""
        return job.ends - self.step

    def advance(self, steps: int) -> list[Job]:
        """Do ``steps`` steps; let those go that are at their end, and return them."""
        self.step += steps
        self.context += steps * self.size
        over: list[Job] = []
        while self._ends and self._ends[0][0] <= self.step:
            ends, _, job = heapq.heappop(self._ends)
            if job.ends == ends:
                self.leave(job)
                over.append(job)
        return over

    def steps_to_first_end(self) -> int:
        """Return after how many steps the first of them ends; there is one at least."""
        while self._ends[0][2].ends != self._ends[0][0]:
            heapq.heappop(self._ends)  # it was preempted
        return self._ends[0][0] - self.step

    def blocks_for_steps(self, steps: int) -> int:
        """Return how many blocks the next ``steps`` steps take."""
        rounds, rest = divmod(steps, BLOCK_SIZE)
        return rounds * self.size + sum(self._phases[(self.step + at) % BLOCK_SIZE] for at in range(rest))

    def steps_within(self, blocks: int) -> int:
        """Return how many steps ``blocks`` suffice for; there is one request at least."""
        rounds, left = divmod(blocks, self.size)
        steps = rounds * BLOCK_SIZE
        for at in range(BLOCK_SIZE):
            left -= self._phases[(self.step + at) % BLOCK_SIZE]
            if left < 0:
                break
            steps += 1
        return steps
