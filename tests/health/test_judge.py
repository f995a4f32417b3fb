"""What a report says of an endpoint."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.health.reports import GIB, REPORTS, engine, gpu, reason, report
from tidegate.fleet.evidence import Verdict
from tidegate.health.judge import CODES, MAX_REASONS, OTHER, evidence, judged, memory
from tidegate.health.places import Place
from tidegate.health.registry import patience
from tidegate.health.reported import Answer, Condition, Driver, EngineAnswer, MigInstance, Process, Report

HERE = Place("10.0.0.7:8000")
HEALTHY, DEGRADED, FAILED, UNKNOWN = Condition.HEALTHY, Condition.DEGRADED, Condition.FAILED, Condition.UNKNOWN


def test_sound_gpus_make_a_sound_endpoint_for_as_long_as_three_reports_take() -> None:
    found = evidence(report(gpu(0), gpu(1)), HERE)
    assert (found.source, found.verdict, found.reasons, found.valid_seconds) == ("agent", Verdict.SOUND, (), 6.0)
    assert evidence(report(gpu(), interval_seconds=30.0), HERE).valid_seconds == 90.0


def test_a_gpu_that_failed_fails_the_endpoint_with_its_reason() -> None:
    found = evidence(report(gpu(0), gpu(1, FAILED, "xid_79")), HERE)
    assert (found.verdict, found.reasons) == (Verdict.FAILED, ("xid_79",))
    assert found.detail == "GPU 1: xid_79 for 12 s"


def test_a_doubtful_gpu_makes_it_doubtful_and_the_worst_reason_comes_first() -> None:
    found = evidence(report(gpu(0, DEGRADED, "temperature"), gpu(1)), HERE)
    assert (found.verdict, found.reasons) == (Verdict.IMPAIRED, ("temperature",))
    found = evidence(report(gpu(0, DEGRADED, "temperature"), gpu(1, FAILED, "gpu_lost")), HERE)
    assert (found.verdict, found.reasons) == (Verdict.FAILED, ("gpu_lost", "temperature"))


def test_an_endpoint_on_two_of_eight_gpus_is_judged_by_those_alone() -> None:
    said = report(*(gpu(number) for number in range(7)), gpu(7, FAILED, "xid_79"))
    assert evidence(said, Place("a", ("GPU-0", "GPU-1"), alone=False)).verdict is Verdict.SOUND
    assert evidence(said, Place("a", ("GPU-6", "GPU-7"), alone=False)).verdict is Verdict.FAILED
    assert evidence(said, Place("a")).verdict is Verdict.FAILED


def test_where_nobody_said_whose_gpus_they_are_one_of_them_condemns_nobody() -> None:
    shared = Place("a", (), alone=False)
    found = evidence(report(gpu(0), gpu(1, FAILED, "xid_79")), shared)
    assert (found.verdict, found.reasons) == (Verdict.IMPAIRED, ("xid_79",))
    both = report(gpu(0, FAILED, "gpu_lost"), gpu(1, FAILED, "xid_79"))
    assert evidence(both, shared).verdict is Verdict.FAILED


def test_a_gpu_that_is_not_reported_is_unknown_and_not_lost() -> None:
    found = evidence(report(gpu(0)), Place("a", ("GPU-9",)))
    assert (found.verdict, found.reasons) == (Verdict.UNKNOWN, ("gpu_not_reported",))
    found = evidence(report(gpu(0, FAILED, "xid_79")), Place("a", ("GPU-0", "GPU-9")))
    assert found.verdict is Verdict.FAILED


def test_an_instance_of_a_gpu_is_judged_by_the_gpu() -> None:
    cut = gpu(0, FAILED, "xid_79", mig_instances=(MigInstance("MIG-1", 10 * GIB, 4 * GIB),))
    assert evidence(report(cut, gpu(1)), Place("a", ("MIG-1",))).verdict is Verdict.FAILED


@pytest.mark.parametrize("condition", [DEGRADED, FAILED])
def test_a_condition_without_a_reason_of_its_weight_is_unknown(condition: Condition) -> None:
    assert judged(gpu(0, condition)).reasons == ("unexplained",)
    assert evidence(report(gpu(0, condition)), HERE).verdict is Verdict.UNKNOWN


def test_a_healthy_gpu_with_a_reason_against_it_is_unknown() -> None:
    said = gpu()._replace(reasons=(reason("xid_79"),))
    assert judged(said).verdict is Verdict.UNKNOWN


@pytest.mark.parametrize(("driver", "word"), [(Driver.NOT_LOADED, "driver_not_loaded"), (Driver.USABLE, "no_gpus")])
def test_a_node_whose_gpus_nobody_sees_is_unknown(driver: Driver, word: str) -> None:
    found = evidence(report(driver=driver), HERE)
    assert (found.verdict, found.reasons) == (Verdict.UNKNOWN, (word,))


def test_words_that_no_agent_of_ours_says_are_one_word() -> None:
    said = gpu(0, FAILED, "made_up", "xid_999999", "also_made_up")
    assert judged(said).reasons == (OTHER,)


@pytest.mark.parametrize(
    ("answer", "reason_"),
    [
        (EngineAnswer.REFUSES, "engine_refuses"),
        (EngineAnswer.SILENT, "engine_silent"),
        (EngineAnswer.BAD_STATUS, "engine_bad_status"),
    ],
)
def test_an_engine_that_does_not_answer_its_own_node_is_doubtful(answer: EngineAnswer, reason_: str) -> None:
    found = evidence(report(gpu(), engines=(engine("http://127.0.0.1:8000", answer),)), HERE)
    assert (found.verdict, found.reasons) == (Verdict.IMPAIRED, (reason_,))
    worse = evidence(report(gpu(0, FAILED, "xid_79"), engines=(engine("http://127.0.0.1:8000", answer),)), HERE)
    assert (worse.verdict, worse.reasons) == (Verdict.FAILED, ("xid_79", reason_))


def test_an_engine_that_answers_its_node_and_not_us_is_told_apart() -> None:
    said = report(gpu(), engines=(engine("http://127.0.0.1:8000"),))
    assert evidence(said, HERE).verdict is Verdict.SOUND
    found = evidence(said, HERE, unreachable=True)
    assert (found.verdict, found.reasons) == (Verdict.IMPAIRED, ("answers_only_locally",))


def test_each_endpoint_is_the_engine_at_its_address_or_port_or_the_only_one() -> None:
    refuses = EngineAnswer.REFUSES
    said = report(gpu(), engines=(engine("http://127.0.0.1:8000"), engine("http://127.0.0.1:8001", refuses)))
    assert evidence(said, Place("10.0.0.7:8000", alone=False)).verdict is Verdict.SOUND
    assert evidence(said, Place("10.0.0.7:8001", alone=False)).verdict is Verdict.IMPAIRED
    assert evidence(said, Place("10.0.0.7:9", alone=False)).verdict is Verdict.SOUND
    only = report(gpu(), engines=(engine("http://127.0.0.1:8001", refuses),))
    assert evidence(only, Place("10.0.0.7:30000")).verdict is Verdict.IMPAIRED
    assert evidence(only, Place("10.0.0.7:30000", alone=False)).verdict is Verdict.SOUND


@pytest.mark.parametrize("age", [None, 6.1])
def test_an_answer_that_is_too_old_says_nothing(age: float | None) -> None:
    said = report(gpu(), engines=(engine("http://127.0.0.1:8000", EngineAnswer.REFUSES, age),))
    assert evidence(said, HERE).verdict is Verdict.SOUND


PLACES = st.builds(
    Place,
    st.sampled_from(["10.0.0.7:8000", "127.0.0.1:8000"]),
    st.sampled_from([(), ("GPU-0",), ("GPU-0", "GPU-1"), ("MIG-1",), ("GPU-9",)]),
    st.booleans(),
)


@given(REPORTS, PLACES, st.booleans())
@example(said=report(gpu(0, UNKNOWN)), place=HERE, unreachable=False)
def test_whatever_is_said_the_evidence_is_bounded_and_no_word_is_made_up(
    said: Report, place: Place, unreachable: bool
) -> None:
    found = evidence(said, place, unreachable=unreachable)
    ours = CODES | {OTHER, "unexplained", "gpu_not_reported", "no_gpus", "answers_only_locally"}
    ours |= {f"driver_{driver.value}" for driver in Driver}
    ours |= {"engine_refuses", "engine_silent", "engine_bad_status"}
    assert set(found.reasons) <= ours
    assert len(found.reasons) <= MAX_REASONS
    assert len(found.detail) <= 300
    assert found.valid_seconds == patience(said)
    assert (found.verdict is Verdict.SOUND) or found.reasons
    explained = any(one.condition is Condition.FAILED and one.reasons for one in said.gpus)
    assert found.verdict is not Verdict.FAILED or explained


@given(REPORTS, PLACES)
def test_room_is_known_and_possible_or_unknown(said: Report, place: Place) -> None:
    found = memory(said, place)
    assert found is None or found.free_bytes >= 0


def test_the_fullest_of_its_gpus_bounds_what_an_endpoint_can_take() -> None:
    said = report(gpu(0), gpu(1, memory_free_bytes=2 * GIB), gpu(2, memory_free_bytes=1 * GIB))
    found = memory(said, Place("a", ("GPU-0", "GPU-1"), alone=False))
    assert found == (160 * GIB, 4 * GIB, 6.0)


def test_gpus_that_nothing_runs_on_do_not_count_where_nobody_said_which_are_used() -> None:
    busy = gpu(0, processes=(Process(1, 70 * GIB),), memory_free_bytes=8 * GIB)
    assert memory(report(busy, gpu(1)), HERE) == (80 * GIB, 8 * GIB, 6.0)
    assert memory(report(gpu(0), gpu(1)), HERE) == (160 * GIB, 80 * GIB, 6.0)


def test_vram_of_gpus_that_several_share_is_nobodys() -> None:
    assert memory(report(gpu(0)), Place("a", (), alone=False)) is None


def test_what_is_in_use_tells_what_is_free() -> None:
    assert memory(report(gpu(memory_free_bytes=None)), HERE) == (80 * GIB, 40 * GIB, 6.0)


def test_an_instance_has_vram_of_its_own() -> None:
    cut = gpu(mig_instances=(MigInstance("MIG-1", 10 * GIB, 4 * GIB), MigInstance("MIG-2", 10 * GIB, None)))
    assert memory(report(cut), Place("a", ("MIG-1",))) == (10 * GIB, 6 * GIB, 6.0)
    assert memory(report(cut), Place("a", ("MIG-2",))) is None


@pytest.mark.parametrize(
    "unknown",
    [
        gpu(memory_total_bytes=None),
        gpu(memory_used_bytes=None, memory_free_bytes=None),
        gpu(answer=Answer.HUNG),
        gpu(age_seconds=None),
        gpu(age_seconds=6.1),
    ],
)
def test_what_a_gpu_does_not_say_is_unknown(unknown: object) -> None:
    assert memory(report(gpu(1), unknown), HERE) is None  # type: ignore[arg-type]
    assert memory(report(), HERE) is None
    assert memory(report(gpu(0)), Place("a", ("GPU-9",))) is None
