"""Short ways to write down reports, and strategies for any."""

from typing import Any

from hypothesis import strategies as st

from tidegate.health.reported import (
    Answer,
    Condition,
    Driver,
    Engine,
    EngineAnswer,
    Gpu,
    MigInstance,
    Process,
    Reason,
    Report,
)

GIB = 1 << 30


def reason(code: str, condition: Condition = Condition.FAILED, detail: str = "") -> Reason:
    return Reason(code, condition, detail, 12.0, 1.0)


def gpu(ordinal: int = 0, condition: Condition = Condition.HEALTHY, *codes: str, **fields: Any) -> Gpu:
    """Return a GPU in ``condition`` for the reasons ``codes``, half of its 80 GiB in use."""
    measured = {"memory_total_bytes": 80 * GIB, "memory_used_bytes": 40 * GIB, "memory_free_bytes": 40 * GIB}
    given: dict[str, Any] = {
        "processes": (),
        "throttled": None,
        "mig_instances": (),
        "xids": (),
        "age_seconds": 0.1,
        **measured,
    }
    given |= {"answer": Answer.READ, "uuid": f"GPU-{ordinal}", **fields}
    reasons = tuple(reason(code, condition) for code in codes)
    return Gpu(ordinal=ordinal, name="H100", pci_bus_id="", condition=condition, reasons=reasons, **given)


def engine(url: str, answer: EngineAnswer = EngineAnswer.ANSWERS, age: float | None = 0.1) -> Engine:
    return Engine(url, answer, None, age, 0.01)


def report(*gpus: Gpu, node: str = "gpu-7", sequence: int = 1, **fields: Any) -> Report:
    given: dict[str, Any] = {
        "driver": Driver.USABLE,
        "engines": (),
        "dropped": (),
        "boot_id": "b",
        "interval_seconds": 2.0,
        **fields,
    }
    return Report(
        node=node, sequence=sequence, machine_boot_id="m", agent_version="0", driver_version="580", gpus=gpus, **given
    )


_AMOUNT = st.none() | st.integers(0, 1 << 50)
_CODES = st.sampled_from(["xid_79", "xid_99999", "gpu_lost", "temperature", "made_up", "no_readings"])
REASONS = st.builds(
    Reason, _CODES, st.sampled_from(Condition), st.text(max_size=40), st.floats(0, 1e6), st.floats(0, 9)
)
GPUS = st.builds(
    Gpu,
    uuid=st.sampled_from(["GPU-0", "GPU-1", "GPU-2", "index-3"]),
    ordinal=st.integers(0, 63),
    name=st.text(max_size=10),
    pci_bus_id=st.just(""),
    condition=st.sampled_from(Condition),
    reasons=st.lists(REASONS, max_size=32).map(tuple),
    answer=st.sampled_from(Answer),
    age_seconds=st.none() | st.floats(0, 1e7),
    processes=st.lists(st.builds(Process, st.integers(0, 9), _AMOUNT), max_size=3).map(tuple),
    throttled=st.none(),
    mig_instances=st.lists(
        st.builds(MigInstance, st.sampled_from(["MIG-1", "MIG-2"]), _AMOUNT, _AMOUNT), max_size=3
    ).map(tuple),
    xids=st.just(()),
    memory_total_bytes=_AMOUNT,
    memory_used_bytes=_AMOUNT,
    memory_free_bytes=_AMOUNT,
)
URLS = st.sampled_from(
    [
        "http://127.0.0.1:8000",
        "tcp://10.0.0.7:8000",
        "http://[fd00::1]:80",
        "http://x",
        "http://[",
        "",
        "http://a:99999",
    ]
)
ENGINES = st.builds(Engine, URLS, st.sampled_from(EngineAnswer), st.none() | st.integers(100, 599), _AMOUNT, _AMOUNT)
REPORTS = st.builds(
    report,
    node=st.sampled_from(["gpu-7", "gpu-8", "10.0.0.7", "fd00::1"]),
    driver=st.sampled_from(Driver),
    interval_seconds=st.floats(0.001, 60.0),
    engines=st.lists(ENGINES, max_size=4).map(tuple),
).flatmap(lambda one: st.lists(GPUS, max_size=4).map(lambda gpus: one._replace(gpus=tuple(gpus))))
