"""What holds of a batching engine whatever it is asked, in whatever order."""

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.simulator.engines import engine_request, run_to_end, small_engine
from tidegate.simulator.batching import BatchingEngine, QueueFullError
from tidegate.simulator.sequence import EngineRequest, SequenceState, StepOutcome
from tidegate.simulator.stats import Gauges

PROMPTS = st.integers(1, 90)
OUTPUTS = st.integers(0, 38)
PREFIXES = st.sampled_from(["p", "q", None])


class Engine(RuleBasedStateMachine):
    """Submits, aborts and steps; 8 usable blocks, so that preemption is common."""

    @initialize(batch=st.integers(1, 5), budget=st.integers(1, 200))
    def start(self, batch: int, budget: int) -> None:
        self.engine: BatchingEngine = small_engine(
            max_queue=6, num_gpu_blocks=9, max_num_seqs=batch, max_num_batched_tokens=budget
        )
        self.batch = batch
        self.now = 0.0
        self.number = 0
        self.accepted: dict[str, EngineRequest] = {}
        self.tokens: dict[str, int] = {}
        self.finished: set[str] = set()
        self.aborted: set[str] = set()

    @rule(prompt=PROMPTS, output=OUTPUTS, prefix=PREFIXES)
    def submit(self, prompt: int, output: int, prefix: str | None) -> None:
        self.number += 1
        request = engine_request(f"r{self.number}", prompt, output, prefix=prefix)
        before = self.engine.gauges
        try:
            self.engine.submit([request], self.now)
        except QueueFullError:
            assert before.running + before.waiting == self.batch + 6
        else:
            self.accepted[request.id] = request

    @rule(which=st.integers(0, 20))
    def abort(self, which: int) -> None:
        live = [name for name in self.accepted if name not in self.finished | self.aborted]
        if live:
            name = live[which % len(live)]
            assert self.engine.abort(name)
            self.aborted.add(name)

    @precondition(lambda self: self.engine._step is None)
    @rule()
    def begin(self) -> None:
        self.engine.begin(self.now)

    @precondition(lambda self: self.engine._step is not None)
    @rule()
    def complete(self) -> None:
        self.now += 0.01
        self.record(self.engine.complete(self.now))

    def record(self, outcome: StepOutcome) -> None:
        for name in outcome.tokens:
            assert name not in self.finished | self.aborted
            self.tokens[name] = self.tokens.get(name, 0) + 1
        self.finished |= {finished.id for finished in outcome.finished}

    @invariant()
    def blocks_are_conserved(self) -> None:
        inside: list[SequenceState] = [*self.engine._running, *self.engine._waiting]
        held = [block for sequence in inside for block in sequence.blocks]
        cache = self.engine.cache
        assert cache.free_blocks + len(set(held)) == cache.num_blocks
        assert [cache._holders[block] for block in range(cache.num_blocks)] == [
            held.count(block) for block in range(cache.num_blocks)
        ]

    @invariant()
    def the_batch_is_never_exceeded(self) -> None:
        assert self.engine.gauges.running <= self.batch

    def teardown(self) -> None:
        if not hasattr(self, "engine"):
            return
        if self.engine._step is not None:
            self.complete()
        for outcome in run_to_end(self.engine, self.now):
            self.record(outcome)
        assert self.finished | self.aborted == set(self.accepted), "every admitted request ends"
        for name in self.finished - self.aborted:
            assert self.tokens.get(name, 0) == self.accepted[name].output_tokens
        assert self.engine.gauges == Gauges(0, 0, 0.0)
        assert self.engine.counters.generation_tokens == sum(self.tokens.values())


Engine.TestCase.settings = settings(max_examples=120, stateful_step_count=40, deadline=None)
TestEngine = Engine.TestCase


@settings(deadline=None)
@given(st.lists(st.tuples(PROMPTS, st.integers(1, 38)), min_size=1, max_size=8))
def test_first_come_is_first_served(sizes: list[tuple[int, int]]) -> None:
    engine = small_engine(num_gpu_blocks=9)
    engine.submit([engine_request(f"r{at}", *size) for at, size in enumerate(sizes)], 0.0)
    first_tokens: list[str] = []
    for outcome in run_to_end(engine):
        first_tokens += [name for name in outcome.tokens if name not in first_tokens]
    assert first_tokens == [f"r{at}" for at in range(len(sizes))]


@settings(deadline=None)
@given(prompt=st.integers(1, 400), output=st.integers(1, 60), budget=st.integers(1, 600))
def test_all_of_a_prompt_is_computed_once_however_it_is_cut(prompt: int, output: int, budget: int) -> None:
    engine = small_engine(max_num_batched_tokens=budget)
    engine.submit([engine_request("a", prompt, output)], 0.0)
    outcomes = run_to_end(engine)
    assert len(outcomes) == -(-prompt // budget) + output - 1
    assert engine.counters.step_tokens.sum == prompt + output - 1


@settings(deadline=None)
@given(st.integers(1, 300))
def test_a_repeated_prompt_never_takes_longer(prompt: int) -> None:
    engine = small_engine()
    took: list[float] = []
    for name in ("a", "b"):
        engine.submit([engine_request(name, prompt, 2, prefix="same")], 0.0)
        took.append(sum(outcome.duration for outcome in run_to_end(engine)))
    assert took[1] <= took[0] + 1e-12
