"""Verdicts: from a window of readings to a state with reasons."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.agent.readings import (
    Answer,
    Ecc,
    NvLink,
    Pcie,
    Power,
    Reading,
    RetiredPages,
    RowRemap,
    Temperature,
    Xid,
)
from tidegate.agent.verdict import MAX_REASONS, UNJUDGED, Rules, State, Verdict, growth, judge

RULES = Rules()


def healthy(at: float, **fields: Any) -> Reading:
    return Reading(at, Answer.READ, ecc=Ecc(0, 0))._replace(**fields)


def codes(verdict: Verdict) -> list[str]:
    return [reason.code for reason in verdict.reasons]


def judged(*window: Reading, previous: Verdict = UNJUDGED, rules: Rules = RULES) -> Verdict:
    return judge(previous, window, window[-1].at, rules)


def test_a_gpu_of_which_everything_reads_well_is_healthy() -> None:
    assert judged(healthy(0.0)) == Verdict(State.HEALTHY)


def test_a_gpu_of_which_nothing_was_ever_read_is_unknown() -> None:
    verdict = judge(UNJUDGED, (), 100.0, RULES)
    assert verdict.state is State.UNKNOWN
    assert codes(verdict) == ["no_readings"]


def test_readings_that_stop_make_a_gpu_unknown_and_not_failed() -> None:
    assert judge(UNJUDGED, (healthy(0.0),), RULES.stale_seconds + 0.1, RULES).state is State.UNKNOWN


@pytest.mark.parametrize(
    ("answer", "state", "code"),
    [
        (Answer.LOST, State.FAILED, "gpu_lost"),
        (Answer.RESET_REQUIRED, State.FAILED, "reset_required"),
        (Answer.HUNG, State.DEGRADED, "nvml_hung"),
        (Answer.SILENT, State.UNKNOWN, "no_readings"),
    ],
)
def test_how_a_gpu_answers_is_a_finding(answer: Answer, state: State, code: str) -> None:
    verdict = judged(Reading(0.0, answer))
    assert (verdict.state, codes(verdict)) == (state, [code])


def test_a_lost_gpu_stays_failed_for_its_hold_time_after_it_came_back() -> None:
    verdict = judged(Reading(0.0, Answer.LOST))
    before = judged(healthy(RULES.hold_seconds - 0.1), previous=verdict)
    assert (before.state, before.reasons[0].since, before.reasons[0].seen) == (State.FAILED, 0.0, 0.0)
    assert judged(healthy(RULES.hold_seconds + 0.1), previous=before).state is State.HEALTHY


@pytest.mark.parametrize(("number", "state"), [(79, State.FAILED), (94, State.DEGRADED), (31, State.HEALTHY)])
def test_an_xid_says_what_the_table_says(number: int, state: State) -> None:
    assert judged(healthy(1.0, xids=(Xid(number, 0.5),))).state is state


def test_an_xid_that_nobody_knows_casts_doubt() -> None:
    assert judged(healthy(1.0, xids=(Xid(123_456, 0.5),))).state is State.DEGRADED


def test_an_xid_is_delivered_once_and_condemns_far_beyond_the_window() -> None:
    verdict = judged(healthy(0.0, xids=(Xid(79, 0.0),)))
    later = judged(healthy(1800.0), previous=verdict)
    assert (later.state, codes(later)) == (State.FAILED, ["xid_79"])
    assert judged(healthy(RULES.condemned_seconds + 1), previous=later).state is State.HEALTHY


def test_each_reason_has_a_hold_time_of_its_own() -> None:
    verdict = judged(healthy(0.0, xids=(Xid(79, 0.0), Xid(94, 0.0)), pcie=Pcie(8, 16, 0)))
    assert codes(verdict) == ["xid_79", "pcie_width", "xid_94"]
    verdict = judged(healthy(RULES.hold_seconds + 1, pcie=Pcie(16, 16, 0)), previous=verdict)
    assert codes(verdict) == ["xid_79", "xid_94"]
    verdict = judged(healthy(RULES.watched_seconds + 61), previous=verdict)
    assert codes(verdict) == ["xid_79"]


def test_uncorrected_memory_errors_from_before_the_agent_say_nothing_and_new_ones_do() -> None:
    assert judged(healthy(0.0, ecc=Ecc(0, 7)), healthy(2.0, ecc=Ecc(0, 7))).state is State.HEALTHY
    verdict = judged(healthy(0.0, ecc=Ecc(0, 7)), healthy(2.0, ecc=Ecc(0, 8)))
    assert (verdict.state, codes(verdict)) == (State.DEGRADED, ["ecc_uncorrected"])


def test_corrected_memory_errors_count_by_their_rate() -> None:
    few, many = RULES.corrected_ecc_per_minute - 1, RULES.corrected_ecc_per_minute
    assert judged(healthy(0.0), healthy(2.0, ecc=Ecc(few, 0))).state is State.HEALTHY
    assert codes(judged(healthy(0.0), healthy(2.0, ecc=Ecc(many, 0)))) == ["ecc_corrected"]
    assert judged(healthy(0.0), healthy(61.0, ecc=Ecc(many, 0))).state is State.HEALTHY


def test_a_counter_that_starts_anew_is_not_an_error() -> None:
    assert judged(healthy(0.0, ecc=Ecc(5000, 9)), healthy(2.0, ecc=Ecc(0, 0))).state is State.HEALTHY


@pytest.mark.parametrize(
    ("fields", "state", "code"),
    [
        ({"row_remap": RowRemap(0, 1, pending=False, failed=True)}, State.FAILED, "row_remap_failed"),
        ({"row_remap": RowRemap(0, 1, pending=True, failed=False)}, State.DEGRADED, "row_remap_pending"),
        ({"retired_pages": RetiredPages(0, 1, pending=True)}, State.DEGRADED, "page_retirement_pending"),
        ({"nvlink": NvLink(17, 1, 1, 0)}, State.DEGRADED, "nvlink_down"),
        ({"pcie": Pcie(4, 16, 0)}, State.DEGRADED, "pcie_width"),
    ],
)
def test_what_one_reading_shows(fields: dict[str, object], state: State, code: str) -> None:
    verdict = judged(healthy(0.0, **fields))
    assert (verdict.state, codes(verdict)) == (state, [code])


@pytest.mark.parametrize(
    "fields",
    [
        {"row_remap": RowRemap(3, 1, pending=False, failed=False)},
        {"retired_pages": RetiredPages(5, None, pending=None)},
        {"nvlink": NvLink(0, 18, 0, None)},
        {"pcie": Pcie(None, 16, None)},
        {"temperature": Temperature(95, None)},
    ],
)
def test_what_is_unknown_or_was_never_otherwise_is_no_reason(fields: dict[str, object]) -> None:
    assert judged(healthy(0.0, **fields), healthy(20.0, **fields)).state is State.HEALTHY


def test_heat_counts_once_it_has_lasted() -> None:
    hot = [healthy(float(at), temperature=Temperature(90, 87)) for at in range(0, 12, 2)]
    assert judged(*hot[:5]).state is State.HEALTHY
    assert codes(judged(*hot)) == ["temperature"]
    cooled = healthy(5.0, temperature=Temperature(80, 87))
    assert judged(*sorted([*hot, cooled])).state is State.HEALTHY


def test_clocks_lowered_by_heat_in_most_readings_count_and_a_power_cap_never_does() -> None:
    slow = [healthy(float(at), power=Power(1, 2, frozenset({"hw_thermal_slowdown"}))) for at in range(3)]
    capped = [healthy(float(at), power=Power(1, 2, frozenset({"sw_power_cap", "gpu_idle"}))) for at in range(30)]
    assert codes(judged(*slow)) == ["hw_thermal_slowdown"]
    assert judged(*slow[:2]).state is State.HEALTHY
    assert judged(*capped).state is State.HEALTHY
    assert judged(*slow, *(one._replace(at=one.at + 3) for one in capped)).state is State.HEALTHY


@pytest.mark.parametrize("counter", ["nvlink_errors", "pcie_replays"])
def test_links_that_repeat_themselves_all_the_time_count(counter: str) -> None:
    def counted(at: float, count: int) -> Reading:
        return healthy(at, nvlink=NvLink(18, 0, 0, count), pcie=Pcie(16, 16, 0))

    def replayed(at: float, count: int) -> Reading:
        return healthy(at, pcie=Pcie(16, 16, count))

    make = counted if counter == "nvlink_errors" else replayed
    assert judged(make(0.0, 0), make(2.0, 999)).state is State.HEALTHY
    assert codes(judged(make(0.0, 0), make(2.0, 1000))) == [counter]


def test_the_worst_reason_comes_first_and_makes_the_state() -> None:
    verdict = judged(healthy(0.0, pcie=Pcie(8, 16, 0), row_remap=RowRemap(0, 1, pending=True, failed=True)))
    assert verdict.state is State.FAILED
    assert codes(verdict)[0] == "row_remap_failed"


def test_more_xids_than_reasons_are_kept_leave_the_worst() -> None:
    numbers = [*range(1000, 1000 + 2 * MAX_REASONS), 79]
    verdict = judged(healthy(0.0, xids=tuple(Xid(number, 0.0) for number in numbers)))
    assert len(verdict.reasons) == MAX_REASONS
    assert codes(verdict)[0] == "xid_79"


counts = st.none() | st.integers(0, 1 << 62)
bits = st.booleans()
readings = st.builds(
    Reading,
    at=st.floats(0, 300),
    answer=st.sampled_from(Answer),
    ecc=st.none() | st.builds(Ecc, counts, counts),
    temperature=st.none() | st.builds(Temperature, st.none() | st.integers(-50, 200), st.none() | st.integers(0, 200)),
    power=st.none()
    | st.builds(Power, counts, counts, st.none() | st.frozensets(st.sampled_from(["hw_slowdown", "x"]))),
    row_remap=st.none() | st.builds(RowRemap, st.integers(0, 9), st.integers(0, 9), bits, bits),
    nvlink=st.none() | st.builds(NvLink, st.integers(0, 36), st.integers(0, 36), st.integers(0, 36), counts),
    pcie=st.none() | st.builds(Pcie, counts, counts, counts),
    xids=st.lists(st.builds(Xid, st.integers(0, 200), st.floats(0, 300)), max_size=5).map(tuple),
)
histories = st.lists(readings, max_size=12).map(lambda all_of: sorted(all_of, key=lambda reading: reading.at))


@given(histories)
def test_whatever_is_read_a_state_has_the_reasons_that_it_needs(history: list[Reading]) -> None:
    verdict = UNJUDGED
    for until in range(1, len(history) + 1):
        now = history[until - 1].at
        verdict = judge(verdict, history[:until], now, RULES)
        assert verdict.state is max((reason.state for reason in verdict.reasons), default=State.HEALTHY)
        assert len({*codes(verdict)}) == len(verdict.reasons)
        assert all(reason.since <= reason.seen <= now for reason in verdict.reasons)
        assert all(reason.seen == now or now - reason.seen < reason.hold for reason in verdict.reasons)


@given(histories)
def test_a_gpu_that_reads_well_for_long_enough_is_healthy_whatever_was(history: list[Reading]) -> None:
    verdict = UNJUDGED
    for until in range(1, len(history) + 1):
        verdict = judge(verdict, history[:until], history[until - 1].at, RULES)
    at = 400.0 + RULES.condemned_seconds
    assert judge(verdict, [*history, healthy(at)], at, RULES) == Verdict(State.HEALTHY)


@given(histories)
def test_a_clock_that_jumps_back_breaks_nothing(history: list[Reading]) -> None:
    verdict = judge(UNJUDGED, history, 1000.0, RULES)
    assert judge(verdict, history, 1.0, RULES).state in State


@given(st.lists(counts, max_size=20))
def test_growth_is_never_negative_and_at_most_what_the_counter_shows(values: list[int | None]) -> None:
    known = [value for value in values if value is not None]
    assert 0 <= growth(values) <= sum(known)
