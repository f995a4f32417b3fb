"""The engine that jumps: the same as the stepwise one, and within its limits whatever comes."""

import random
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.simulator.virtual.reference import jumping, profile, stepwise
from tidegate.simulator.batching import QueueFullError
from tidegate.simulator.profiles import BLOCK_SIZE
from tidegate.simulator.virtual.engine import TooLongError, VirtualEngine
from tidegate.simulator.virtual.job import Job
from tidegate.simulator.virtual.workload import Arrival

PREFIXES = [tuple(range(start, start + 30)) for start in (1000, 2000, 3000)]


@st.composite
def workloads(draw: st.DrawFn, most_prompt: int = 300, most_answer: int = 80) -> list[Arrival]:
    """Draw up to 25 requests, some with a prefix in common."""
    now, arrivals = 0.0, []
    for number in range(draw(st.integers(1, 25))):
        now += draw(st.sampled_from([0.0, 0.001, 0.07, 0.5, 2.0]))
        prompt, answer = draw(st.integers(1, most_prompt)), draw(st.integers(0, most_answer))
        shared = draw(st.integers(0, prompt // BLOCK_SIZE))
        own = tuple(number * 100_000 + at for at in range(prompt // BLOCK_SIZE - shared))
        prefix = draw(st.sampled_from(PREFIXES))[:shared]
        arrivals.append(Arrival(now, prompt, answer, prefix + own, BLOCK_SIZE))
    return arrivals


@settings(deadline=None)
@given(workloads())
def test_with_room_for_all_it_gives_every_token_when_the_stepwise_model_does(arrivals: list[Arrival]) -> None:
    roomy = profile(num_gpu_blocks=2_001)
    expected, _ = stepwise(roomy, arrivals)
    for job, served, arrival in zip(jumping(VirtualEngine(roomy), arrivals), expected, arrivals, strict=True):
        assert job.finished == pytest.approx(served.finished, abs=1e-9)
        if arrival.output_tokens:
            assert job.first_token == pytest.approx(served.first_token, abs=1e-9)
        assert job.cached == served.cached


@pytest.mark.parametrize("seed", range(6))
def test_short_of_blocks_it_preempts_as_the_stepwise_model_does(seed: int) -> None:
    """Times may differ by what a single token, computed anew after a preemption, costs as prefill or as decoding."""
    rng = random.Random(seed)
    now, arrivals = 0.0, []
    for _ in range(60):
        now += rng.expovariate(3)
        prompt, answer = rng.randint(1, 400), rng.randint(1, 120)
        shared = rng.randint(0, prompt // BLOCK_SIZE)
        blocks = PREFIXES[rng.randrange(3)][:shared]
        blocks += tuple(rng.getrandbits(40) for _ in range(prompt // BLOCK_SIZE - len(blocks)))
        arrivals.append(Arrival(now, prompt, answer, blocks, BLOCK_SIZE))
    tight = profile(num_gpu_blocks=41)
    expected, preemptions = stepwise(tight, arrivals)
    engine = VirtualEngine(tight)
    jobs = jumping(engine, arrivals)
    assert preemptions > 5
    assert engine.preemptions == pytest.approx(preemptions, rel=0.1)
    for job, served in zip(jobs, expected, strict=True):
        assert job.first_token == pytest.approx(served.first_token, rel=0.01)
        assert job.finished == pytest.approx(served.finished, rel=0.01)


@settings(deadline=None)
@given(workloads(), st.integers(26, 60), st.integers(1, 8))
def test_every_request_ends_once_and_no_block_is_lost_or_invented(
    arrivals: list[Arrival], blocks: int, batch: int
) -> None:
    engine = VirtualEngine(profile(num_gpu_blocks=blocks, max_num_seqs=batch))
    jobs = [Job(one.prompt_tokens, one.output_tokens, one.blocks, one.block_tokens) for one in arrivals]
    ended: list[Job] = []
    coming = 0
    while coming < len(jobs) or engine.next_event is not None:
        due = engine.next_event
        if coming < len(jobs) and (due is None or arrivals[coming].at <= due):
            engine.submit(jobs[coming], arrivals[coming].at)
            coming += 1
        elif due is not None:
            ended += engine.advance(due)
        assert 0 <= engine.store.free <= engine.store.total
        assert len(engine.running) <= batch
        report = engine.report(max(due or 0.0, 0.0))
        assert (report.running or 0) + (report.waiting or 0) == coming - len(ended)
        assert 0 <= (report.kv_usage or 0) <= 1
    assert sorted(map(id, ended)) == sorted(map(id, jobs))
    assert engine.store.free == engine.store.total
    assert engine.generation_tokens == sum(one.output_tokens for one in arrivals)
    assert engine.prompt_tokens == sum(one.prompt_tokens for one in arrivals)


@settings(deadline=None)
@given(workloads(), st.floats(1.5, 20))
def test_the_same_requests_in_less_time_are_not_over_sooner_after_their_arrival_on_average(
    arrivals: list[Arrival], press: float
) -> None:
    plain = [Arrival(one.at, one.prompt_tokens, one.output_tokens) for one in arrivals]
    pressed = [Arrival(one.at / press, one.prompt_tokens, one.output_tokens) for one in arrivals]
    roomy = profile(num_gpu_blocks=2_001, max_num_seqs=64)

    def waits(requests: list[Arrival]) -> float:
        jobs = jumping(VirtualEngine(roomy), requests)
        return sum((job.finished or 0) - one.at for job, one in zip(jobs, requests, strict=True))

    # A step under way when a request comes may be shorter for it: up to one step of decoding each.
    assert waits(pressed) >= waits(plain) - len(plain) * 0.02


def test_a_report_between_two_events_shows_what_the_run_has_done_so_far() -> None:
    engine = VirtualEngine(profile(num_gpu_blocks=101))
    engine.submit(Job(16, 81), 0.0)
    engine.advance(0.0)
    first = engine.next_event
    assert first is not None
    engine.advance(first)
    last = engine.next_event
    assert last is not None
    reports = [engine.report(first + (last - first) * share / 20) for share in range(20)]
    generated = [report.generation_tokens_total or 0 for report in reports]
    assert generated[0] == 1
    assert all(before < after for before, after in pairwise(generated))
    assert generated[-1] > 70
    usage = [report.kv_usage or 0 for report in reports]
    assert usage[0] == pytest.approx(0.02)
    assert usage[-1] == pytest.approx(0.06)


def test_a_frozen_engine_goes_on_where_it_stopped() -> None:
    engine = VirtualEngine(profile(num_gpu_blocks=101))
    job = Job(16, 50)
    engine.submit(job, 0.0)
    engine.advance(0.0)
    engine.freeze(0.001)
    assert jumping(engine, []) == []
    assert engine.generation_tokens < 50
    engine.submit(Job(16, 1), 5.0)
    assert engine.next_event is None
    engine.thaw(10.0)
    jumping(engine, [])
    assert 10.0 < (job.finished or 0) < 12.0


def test_a_slow_engine_takes_longer_for_every_step() -> None:
    def seconds(slow: float) -> float:
        engine = VirtualEngine(profile())
        engine.set_slow(slow, 0.0)
        (job,) = jumping(engine, [Arrival(0.0, 100, 30)])
        return job.finished or 0

    assert seconds(10.0) == pytest.approx(10 * seconds(1.0))


def test_what_does_not_fit_is_refused() -> None:
    engine = VirtualEngine(profile(num_gpu_blocks=11, max_num_seqs=1), max_queue=1)
    with pytest.raises(TooLongError):
        engine.submit(Job(100, 61), 0.0)
    engine.submit(Job(100, 60), 0.0)
    engine.submit(Job(100, 60), 0.0)
    with pytest.raises(QueueFullError):
        engine.submit(Job(1, 1), 0.0)


def test_a_profile_whose_batch_outgrows_its_steps_is_refused() -> None:
    with pytest.raises(ValueError, match="a step needs a token"):
        VirtualEngine(profile(max_num_seqs=65, max_num_batched_tokens=64))


def test_units_that_are_no_whole_blocks_are_refused() -> None:
    with pytest.raises(ValueError, match="multiple of 16"):
        Job(100, 1, (1, 2), 24)
