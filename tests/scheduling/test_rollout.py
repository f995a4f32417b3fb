"""A canary that grows while it does well, under virtual time."""

import random

import pytest

from tidegate.scheduling.rollout import Limits, Phase, Plan, Rollout, Sample, Standing, chance, slower

PLAN = Plan((0.05, 0.25, 1.0), 60.0, Limits(min_requests=20))
GOOD = Sample(failed=False, ttft=0.2, tpot=0.02)
BAD = Sample(failed=True)


def begun(standing: Standing | None = None, plan: Plan = PLAN) -> Rollout:
    return Rollout(plan, 0.0, standing)


def feed(rollout: Rollout, canary: list[Sample], stable: list[Sample] | None = None) -> None:
    for sample in canary:
        rollout.observe(sample, canary=True)
    for sample in [GOOD] * 100 if stable is None else stable:
        rollout.observe(sample, canary=False)


def test_a_good_canary_gets_all_step_by_step() -> None:
    rollout, shares = begun(), []
    for minute in range(1, 4):
        shares.append(rollout.share)
        feed(rollout, [GOOD] * 20)
        assert not rollout.tick(minute * 60 - 1)
        assert rollout.tick(minute * 60)
    assert shares == [0.05, 0.25, 1.0]
    assert (rollout.standing.phase, rollout.share) == (Phase.DONE, 1.0)
    assert not rollout.tick(1_000)


def test_a_step_needs_enough_requests_of_the_canary() -> None:
    rollout = begun()
    feed(rollout, [GOOD] * 19)
    assert not rollout.tick(600)
    assert rollout.waits_for(600) == "1 more requests of the canary"
    assert rollout.waits_for(30) == "30 s more at this step"
    feed(rollout, [GOOD])
    assert rollout.waits_for(600) == ""
    assert rollout.tick(600)


def test_each_step_is_judged_by_its_own_requests() -> None:
    rollout = begun()
    feed(rollout, [GOOD] * 20)
    rollout.tick(60)
    assert not rollout.tick(600)
    assert rollout.waits_for(600) == "20 more requests of the canary"


def test_a_canary_that_fails_everything_is_rolled_back_after_three() -> None:
    rollout = begun()
    feed(rollout, [BAD] * 2)
    assert not rollout.tick(1)
    feed(rollout, [BAD])
    assert rollout.tick(2)
    assert (rollout.share, rollout.standing.phase) == (0.0, Phase.ROLLED_BACK)
    assert rollout.standing.reason == "3 of 3 requests failed, 0 of 200 on the stable side"
    assert not rollout.tick(3)


def test_a_canary_that_is_last_in_the_plan_is_still_compared_with_the_stable_sides_past() -> None:
    rollout = begun(Standing(Phase.ADVANCING, 2))
    feed(rollout, [BAD] * 3)
    assert rollout.tick(1)
    assert rollout.share == 0.0


def test_what_troubles_both_sides_speaks_against_neither() -> None:
    rollout = begun()
    feed(rollout, [BAD, GOOD] * 20, [BAD, GOOD] * 100)
    assert not rollout.fault()


def test_a_few_unlucky_requests_decide_nothing() -> None:
    rollout = begun()
    feed(rollout, [BAD] + [GOOD] * 20)
    assert not rollout.fault()


@pytest.mark.parametrize(
    ("slow", "said"),
    [
        (Sample(failed=False, ttft=0.3, tpot=0.02), "TTFT p50 is 300 ms, 200 ms on the stable side"),
        (Sample(failed=False, ttft=0.2, tpot=0.03), "TPOT p50 is 30 ms, 20 ms on the stable side"),
    ],
)
def test_a_canary_that_is_slower_for_all_is_rolled_back(slow: Sample, said: str) -> None:
    rollout = begun()
    feed(rollout, [slow] * 40)
    assert rollout.tick(1)
    assert rollout.standing.reason == said


def test_a_canary_that_is_slower_for_the_unlucky_is_rolled_back() -> None:
    rollout = begun()
    feed(rollout, ([GOOD] * 3 + [Sample(failed=False, ttft=2.0, tpot=0.02)]) * 60)
    assert rollout.fault() == "TTFT p90 is 2000 ms, 200 ms on the stable side"


def test_a_little_slower_is_allowed() -> None:
    rollout = begun()
    feed(rollout, [Sample(failed=False, ttft=0.24, tpot=0.024)] * 500)
    assert not rollout.fault()


def test_times_are_compared_only_where_both_have_enough() -> None:
    assert not slower([9.0] * 19, [1.0] * 100, 0.5, 1.25)
    assert not slower([9.0] * 100, [1.0] * 19, 0.5, 1.25)
    assert slower([9.0] * 20, [1.0] * 20, 0.5, 1.25)


@pytest.mark.parametrize("seed", range(20))
def test_a_canary_that_is_no_other_is_not_rolled_back(seed: int) -> None:
    rng, rollout = random.Random(seed), begun()
    for second in range(60):
        for _ in range(20):
            # Failures and times as spread as real ones.
            sample = Sample(rng.random() < 0.01, rng.lognormvariate(-1.5, 1.0), rng.lognormvariate(-4, 0.3))
            rollout.observe(sample, canary=rng.random() < 0.1)
        rollout.tick(second)
    assert rollout.standing.phase is not Phase.ROLLED_BACK, rollout.standing.reason


def test_chance_is_the_tail_of_the_binomial_distribution() -> None:
    assert chance(0, 10, 0.02) == 1.0
    assert chance(1, 1, 0.02) == pytest.approx(0.02)
    assert chance(2, 2, 0.5) == pytest.approx(0.25)
    assert chance(2, 3, 0.5) == pytest.approx(0.5)
    assert chance(1, 3, 0.0) == 0.0
    assert chance(1, 3, 1.0) == 1.0
    assert 0.4 < chance(1_000, 2_000, 0.5) < 0.6


def test_a_hand_can_pause_it_and_it_is_still_judged() -> None:
    rollout = begun()
    assert rollout.pause()
    assert not rollout.pause()
    feed(rollout, [GOOD] * 50)
    assert not rollout.tick(600)
    assert rollout.promote(600)
    assert (rollout.share, rollout.standing.phase) == (0.25, Phase.ADVANCING)
    rollout.pause()
    feed(rollout, [BAD] * 50)
    assert rollout.tick(601)
    assert rollout.standing.phase is Phase.ROLLED_BACK


def test_a_hand_can_resume_it_at_the_step_where_it_was_paused() -> None:
    rollout = begun(Standing(Phase.ADVANCING, 1))
    assert not rollout.resume(1)
    rollout.pause()
    assert rollout.resume(100)
    assert (rollout.standing, rollout.share) == (Standing(Phase.ADVANCING, 1, "by hand"), 0.25)
    feed(rollout, [GOOD] * 20)
    assert not rollout.tick(159)
    assert rollout.tick(160)


def test_a_hand_can_promote_it_to_the_end_and_roll_it_back_from_there() -> None:
    rollout = begun()
    assert all(rollout.promote(now) for now in (1, 2, 3))
    assert (rollout.share, rollout.standing.phase) == (1.0, Phase.DONE)
    assert not rollout.promote(4)
    assert not rollout.pause()
    assert rollout.rollback(5)
    assert rollout.share == 0.0
    assert not rollout.rollback(6)
    assert rollout.promote(7)
    assert (rollout.share, rollout.standing) == (0.05, Standing(Phase.ADVANCING, 0, "by hand"))


def test_it_goes_on_where_it_stood() -> None:
    assert begun(Standing(Phase.PAUSED, 1)).share == 0.25
    assert begun(Standing(Phase.ADVANCING, 9)).share == 1.0  # the plan became shorter
    assert begun(Standing(Phase.ROLLED_BACK, 1)).share == 0.0


def test_a_clock_that_goes_back_changes_nothing() -> None:
    rollout = Rollout(PLAN, 100.0)
    feed(rollout, [GOOD] * 30)
    assert not rollout.tick(0.0)
    assert rollout.tick(160.0)


@pytest.mark.parametrize("steps", [(), (0.0,), (0.5, 0.5), (0.5, 0.1), (1.5,)])
def test_steps_that_do_not_grow_are_refused(steps: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="above the one before"):
        begun(plan=Plan(steps, 60.0))
