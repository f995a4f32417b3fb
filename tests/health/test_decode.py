"""Reports from the wire: what cannot be true is left out, field by field."""

import contextlib
from typing import Any

import pytest
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from hypothesis import given
from hypothesis import strategies as st

from protos import gpu_health_pb2 as pb
from tidegate.health.decode import (
    BOUNDS,
    MAX_GPUS,
    MAX_INTERVAL_SECONDS,
    MAX_REASONS,
    MAX_TEXT,
    MalformedError,
    decoded,
)
from tidegate.health.reported import Answer, Condition, Driver, EngineAnswer, Gpu, Reason, Report, Xid


def message(*gpus: pb.Gpu, **fields: Any) -> pb.NodeReport:
    merged = {"node": "n1", "boot_id": "b1", "sequence": 1, "interval_ms": 2000, **fields}
    return pb.NodeReport(gpus=gpus, **merged)


def read(*gpus: pb.Gpu, **fields: Any) -> Report:
    return decoded(message(*gpus, **fields).SerializeToString())


def gpu(**fields: Any) -> pb.Gpu:
    return pb.Gpu(**{"uuid": "GPU-1", "state": pb.STATE_HEALTHY, "answer": pb.ANSWER_READ, **fields})


def test_every_field_arrives() -> None:
    report = read(
        gpu(
            index=3,
            name="H100",
            age_ms=250,
            gpu_percent=0,
            celsius=-5,
            mig_enabled=False,
            state=pb.STATE_DEGRADED,
            reasons=[pb.Reason(code="nvml_hung", state=pb.STATE_DEGRADED, detail="d", since_ms=9000, seen_ms=1000)],
            throttling=pb.Throttling(reasons=["hw_slowdown"]),
            processes=[pb.Process(pid=7)],
            xids=[pb.Xid(number=79, age_ms=1500)],
        ),
        driver=pb.DRIVER_STATE_USABLE,
        engines=[pb.Engine(url="tcp://h:1", state=pb.ENGINE_STATE_SILENT, age_ms=10, took_ms=2000)],
    )
    (one,) = report.gpus
    assert (report.node, report.boot_id, report.sequence, report.interval_seconds) == ("n1", "b1", 1, 2.0)
    assert (report.driver, report.dropped) == (Driver.USABLE, ())
    assert (one.ordinal, one.name, one.condition, one.answer) == (3, "H100", Condition.DEGRADED, Answer.READ)
    assert (one.age_seconds, one.gpu_percent, one.celsius, one.mig_enabled) == (0.25, 0, -5, False)
    assert one.reasons == (Reason("nvml_hung", Condition.DEGRADED, "d", 9.0, 1.0),)
    assert one.throttled == frozenset({"hw_slowdown"})
    assert [(process.pid, process.used_bytes) for process in one.processes] == [(7, None)]
    assert one.xids == (Xid(79, 1.5),)
    assert [(engine.answer, engine.http_status) for engine in report.engines] == [(EngineAnswer.SILENT, None)]


def test_a_field_that_is_not_there_is_unknown_and_not_zero() -> None:
    (one,) = read(gpu()).gpus
    assert {getattr(one, name) for name in BOUNDS} == {None}
    assert one.throttled is None


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("gpu_percent", 101),
        ("gpu_percent", 2**32 - 1),
        ("memory_percent", 250),
        ("memory_used_bytes", 2**63),
        ("celsius", 5000),
        ("celsius", -(2**31)),
        ("slowdown_celsius", 0),
        ("milliwatts", 2**64 - 1),
        ("pcie_width", 0),
        ("ecc_uncorrected", 2**64 - 1),
        ("nvlinks_active", 1_000_000),
    ],
)
def test_an_impossible_value_is_left_out_and_named_and_the_rest_is_kept(field: str, value: int) -> None:
    report = read(gpu(**{"limit_milliwatts": 700_000, field: value}))
    assert report.dropped == (field,)
    assert getattr(report.gpus[0], field) is None
    assert report.gpus[0].limit_milliwatts == 700_000
    assert report.gpus[0].condition is Condition.HEALTHY


def test_more_vram_used_than_there_is_is_left_out() -> None:
    report = read(gpu(memory_total_bytes=100, memory_used_bytes=101, memory_free_bytes=40))
    one = report.gpus[0]
    assert (one.memory_total_bytes, one.memory_used_bytes, one.memory_free_bytes) == (100, None, 40)
    assert report.dropped == ("memory_used_bytes",)


def test_a_million_gpus_are_cut_to_what_a_host_can_have() -> None:
    report = read(*(gpu(uuid=f"GPU-{number}") for number in range(MAX_GPUS + 1000)))
    assert len(report.gpus) == MAX_GPUS
    assert report.dropped == ("gpus",)


@pytest.mark.parametrize("uuid", ["", "GPU 1", "GPU-1\n", "é", "x" * 300, "../../etc", '"', "\x1b[2J"])
def test_a_gpu_without_a_proper_uuid_is_left_out(uuid: str) -> None:
    report = read(gpu(uuid=uuid), gpu(uuid="GPU-2"))
    assert [one.uuid for one in report.gpus] == ["GPU-2"]
    assert report.dropped == ("uuid",)


def test_a_gpu_that_is_told_twice_counts_once() -> None:
    report = read(gpu(celsius=50), gpu(celsius=90))
    assert [one.celsius for one in report.gpus] == [50]


def test_an_age_of_years_is_not_believed() -> None:
    report = read(gpu(age_ms=2**63, xids=[pb.Xid(number=79, age_ms=2**63)]))
    assert (report.gpus[0].age_seconds, report.gpus[0].xids) == (None, ())
    assert report.dropped == ("age_ms",)


@pytest.mark.parametrize("interval", [0, 10_000_000])
def test_an_impossible_interval_is_the_longest_one(interval: int) -> None:
    report = read(interval_ms=interval)
    assert (report.interval_seconds, report.dropped) == (MAX_INTERVAL_SECONDS, ("interval_ms",))


def test_reasons_are_bounded_and_have_codes() -> None:
    reasons = [pb.Reason(code=f"xid_{number}", state=pb.STATE_FAILED) for number in range(2 * MAX_REASONS)]
    reasons[0].code = 'a",b="c'
    report = read(gpu(reasons=reasons))
    assert [reason.code for reason in report.gpus[0].reasons] == [f"xid_{number}" for number in range(1, MAX_REASONS)]
    assert report.dropped == ("reasons",)


def test_text_is_cut_and_cannot_drive_a_terminal() -> None:
    report = read(gpu(name="\x1b[2J" + "x" * 1000), driver_version="1\n2")
    assert report.driver_version == "1?2"
    assert report.gpus[0].name.startswith("?[2J")
    assert len(report.gpus[0].name) == MAX_TEXT


def test_values_of_enums_that_we_do_not_know_are_unknown() -> None:
    engine = pb.Engine(url="u", http_status=9999)
    engine.state = 99  # type: ignore[assignment] # as of a later version
    report = read(gpu(state=99, answer=99), driver=99, engines=[engine])
    assert (report.driver, report.gpus[0].condition) == (Driver.UNKNOWN, Condition.UNKNOWN)
    assert report.gpus[0].answer is Answer.UNKNOWN
    assert (report.engines[0].answer, report.engines[0].http_status) == (EngineAnswer.UNKNOWN, None)


@pytest.mark.parametrize(
    "fields", [{"node": ""}, {"node": "a/b"}, {"node": "é"}, {"boot_id": ""}, {"boot_id": "x" * 300}, {"sequence": 0}]
)
def test_a_report_that_does_not_say_whose_and_which_it_is_is_malformed(fields: dict[str, Any]) -> None:
    with pytest.raises(MalformedError):
        read(**fields)


def test_the_bounds_name_every_measurement() -> None:
    simple = {field.name for field in pb.Gpu.DESCRIPTOR.fields if field.has_presence and field.name != "throttling"}
    assert simple == set(BOUNDS)
    assert simple <= set(Gpu._fields)


@given(st.binary(max_size=400))
def test_no_bytes_do_more_than_be_malformed(data: bytes) -> None:
    with contextlib.suppress(MalformedError):
        decoded(data)


KINDS: dict[int, st.SearchStrategy[Any]] = {
    FieldDescriptor.CPPTYPE_UINT64: st.integers(0, 2**64 - 1),
    FieldDescriptor.CPPTYPE_UINT32: st.integers(0, 2**32 - 1),
    FieldDescriptor.CPPTYPE_INT32: st.integers(-(2**31), 2**31 - 1),
    FieldDescriptor.CPPTYPE_BOOL: st.booleans(),
    FieldDescriptor.CPPTYPE_STRING: st.text(max_size=8),
    FieldDescriptor.CPPTYPE_ENUM: st.integers(0, 9),
}


def _fill(draw: st.DrawFn, filled: Message) -> None:
    """Give some of the fields of ``filled`` any values of their types."""
    for field in filled.DESCRIPTOR.fields:
        for _ in range(draw(st.integers(0, 2 if field.is_repeated else 1))):
            if field.message_type is None:
                value = draw(KINDS[field.cpp_type])
                if field.is_repeated:
                    getattr(filled, field.name).append(value)
                else:
                    setattr(filled, field.name, value)
            elif field.is_repeated:
                _fill(draw, getattr(filled, field.name).add())
            else:
                getattr(filled, field.name).SetInParent()
                _fill(draw, getattr(filled, field.name))


@st.composite
def gpus(draw: st.DrawFn) -> pb.Gpu:
    filled = pb.Gpu()
    _fill(draw, filled)
    filled.uuid, filled.index = "GPU-1", 0
    return filled


@given(gpus())
def test_whatever_a_gpu_is_said_to_be_what_is_kept_can_be_true(wild: pb.Gpu) -> None:
    report = read(wild)
    (one,) = report.gpus
    for name, bound in BOUNDS.items():
        value = getattr(one, name)
        assert value is None or value in bound
        assert (value is None) == (not wild.HasField(name) or name in report.dropped)
    assert one.age_seconds is None or one.age_seconds >= 0
    assert all(text.isprintable() for text in (one.name, one.pci_bus_id))
