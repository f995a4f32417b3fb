"""Watching GPUs: whatever goes wrong is a finding."""

import asyncio
import logging
import threading
import time
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest

from tests.agent.fake_nvml import FakeNvml, refuse
from tidegate.agent import session
from tidegate.agent.readings import Answer
from tidegate.agent.session import DriverState
from tidegate.agent.verdict import Rules, State
from tidegate.agent.watch import REOPEN_SECONDS, RESET_SECONDS, Watch

LOST, RESET, UNINITIALIZED, NOT_LOADED, NO_LIBRARY, MISMATCH = 15, 16, 1, 9, 12, 18


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def nvml() -> FakeNvml:
    return FakeNvml(gpus=2)


@pytest.fixture
async def watch(nvml: FakeNvml, clock: Clock) -> AsyncIterator[Watch]:
    watch = Watch(nvml, 0.2, Rules(), clock)
    yield watch
    await watch.close()


def states(watch: Watch) -> list[State]:
    return [watched.verdict.state for watched in watch]


def answers(watch: Watch) -> list[Answer]:
    return [watched.window[-1].answer for watched in watch]


async def test_every_gpu_is_read_and_known_by_its_uuid(watch: Watch) -> None:
    await watch.sweep()
    assert [watched.identity.uuid for watched in watch] == ["GPU-0", "GPU-1"]
    assert states(watch) == [State.HEALTHY, State.HEALTHY]
    assert watch.driver == (DriverState.USABLE, "580.1")


async def test_what_a_card_does_not_support_is_unknown_and_logged_once(
    watch: Watch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    for _ in range(3):
        await watch.sweep()
    said = [record for record in caplog.records if record.getMessage() == "a reading is not to be had"]
    calls = [(record.__dict__["fields"]["gpu"], record.__dict__["fields"]["call"]) for record in said]
    assert ("GPU-0", "nvmlDeviceGetPowerUsage") in calls
    assert len(calls) == len({*calls})
    last = next(iter(watch)).last
    assert last is not None
    assert (last.power, last.ecc, last.utilisation) == (None, None, None)
    assert last.memory is not None


async def test_a_lost_gpu_fails_and_the_others_go_on(watch: Watch, nvml: FakeNvml) -> None:
    await watch.sweep()
    nvml.on(1, "nvmlDeviceGetMemoryInfo", refuse(LOST))
    await watch.sweep()
    assert answers(watch) == [Answer.READ, Answer.LOST]
    assert states(watch) == [State.HEALTHY, State.FAILED]


async def test_a_gpu_that_needs_a_reset_fails(watch: Watch, nvml: FakeNvml) -> None:
    nvml.on(0, "nvmlDeviceGetPowerUsage", refuse(RESET))
    await watch.sweep()
    assert states(watch) == [State.FAILED, State.HEALTHY]


async def test_a_hung_call_is_a_finding_for_one_gpu_and_ends_with_the_hanging(watch: Watch, nvml: FakeNvml) -> None:
    release = threading.Event()
    nvml.on(0, "nvmlDeviceGetPowerUsage", lambda _: release.wait())
    for _ in range(4):
        await watch.sweep()
        assert answers(watch) == [Answer.HUNG, Answer.READ]
    assert states(watch) == [State.DEGRADED, State.HEALTHY]
    release.set()
    nvml.answers["nvmlDeviceGetPowerUsage"] = lambda _: 1
    async with asyncio.timeout(10):
        while answers(watch)[0] is not Answer.READ:
            await watch.sweep()
            await asyncio.sleep(0.01)


async def test_a_gpu_of_which_nothing_can_be_read_is_unknown(watch: Watch, nvml: FakeNvml) -> None:
    nvml.on(0, "nvmlDeviceGetMemoryInfo", refuse(999))
    await watch.sweep()
    assert answers(watch) == [Answer.SILENT, Answer.READ]
    assert states(watch) == [State.UNKNOWN, State.HEALTHY]


@pytest.mark.parametrize(
    ("code", "state"),
    [
        (NO_LIBRARY, DriverState.NO_LIBRARY),
        (NOT_LOADED, DriverState.NOT_LOADED),
        (MISMATCH, DriverState.VERSION_MISMATCH),
        (999, DriverState.ERROR),
    ],
)
async def test_a_driver_that_cannot_be_used_is_a_finding_and_tried_again_later(
    code: int, state: DriverState, watch: Watch, nvml: FakeNvml, clock: Clock
) -> None:
    init = nvml.answers["nvmlInit"]
    nvml.answers["nvmlInit"] = refuse(code)
    await watch.sweep()
    nvml.answers["nvmlInit"] = init
    assert (watch.driver.state, list(watch)) == (state, [])
    await watch.sweep()
    assert list(watch) == []
    clock.now += REOPEN_SECONDS
    await watch.sweep()
    assert (watch.driver.state, states(watch)) == (DriverState.USABLE, [State.HEALTHY, State.HEALTHY])


async def test_missing_bindings_are_a_finding(clock: Clock) -> None:
    watch = Watch(None, 0.2, Rules(), clock)
    await watch.sweep()
    assert (watch.driver.state, list(watch)) == (DriverState.NO_BINDINGS, [])


async def test_an_initialisation_that_hangs_is_a_finding(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "INIT_SECONDS", 0.0)
    release = threading.Event()
    nvml = FakeNvml()
    nvml.answers["nvmlInit"] = release.wait
    watch = Watch(nvml, 0.05, Rules(), clock)
    await watch.sweep()
    release.set()
    assert (watch.driver.state, list(watch)) == (DriverState.HUNG, [])


async def test_a_driver_that_is_unloaded_makes_its_gpus_unknown_until_it_is_back(
    watch: Watch, nvml: FakeNvml, clock: Clock
) -> None:
    await watch.sweep()
    answer = nvml.answers["nvmlDeviceGetMemoryInfo"]
    nvml.answers["nvmlDeviceGetMemoryInfo"] = refuse(UNINITIALIZED)
    await watch.sweep()
    assert watch.driver.state is DriverState.NOT_LOADED
    assert states(watch) == [State.UNKNOWN, State.UNKNOWN]
    nvml.answers["nvmlDeviceGetMemoryInfo"] = answer
    clock.now += REOPEN_SECONDS
    await watch.sweep()
    assert states(watch) == [State.HEALTHY, State.HEALTHY]


async def test_nvml_is_opened_anew_after_a_gpu_was_lost_so_that_a_reset_one_is_found(
    watch: Watch, nvml: FakeNvml, clock: Clock
) -> None:
    answer = nvml.answers["nvmlDeviceGetMemoryInfo"]
    nvml.on(1, "nvmlDeviceGetMemoryInfo", refuse(LOST))
    await watch.sweep()
    nvml.answers["nvmlDeviceGetMemoryInfo"] = answer
    clock.now += RESET_SECONDS
    await watch.sweep()
    assert nvml.opened == 2
    assert answers(watch) == [Answer.READ, Answer.READ]


async def test_a_gpu_that_is_not_there_any_more_is_lost(watch: Watch, nvml: FakeNvml, clock: Clock) -> None:
    await watch.sweep()
    nvml.on(1, "nvmlDeviceGetMemoryInfo", refuse(LOST))
    await watch.sweep()
    nvml.gpus = 1
    clock.now += RESET_SECONDS
    await watch.sweep()
    assert nvml.opened == 2
    assert answers(watch) == [Answer.READ, Answer.LOST]


async def test_a_gpu_that_is_lost_from_the_start_has_its_index_for_a_name(watch: Watch, nvml: FakeNvml) -> None:
    nvml.on(1, "nvmlDeviceGetHandleByIndex", refuse(LOST))
    await watch.sweep()
    assert [watched.identity.uuid for watched in watch] == ["GPU-0", "index-1"]
    assert states(watch) == [State.HEALTHY, State.FAILED]


async def test_a_gpu_that_tells_its_name_later_is_known_by_it_alone(watch: Watch, nvml: FakeNvml, clock: Clock) -> None:
    nvml.on(1, "nvmlDeviceGetUUID", refuse(999))
    await watch.sweep()
    assert [watched.identity.uuid for watched in watch] == ["GPU-0", "index-1"]
    assert states(watch) == [State.HEALTHY, State.HEALTHY]
    nvml.answers["nvmlDeviceGetUUID"] = lambda gpu: f"GPU-{gpu}"
    clock.now += RESET_SECONDS
    await watch.sweep()
    assert [watched.identity.uuid for watched in watch] == ["GPU-0", "GPU-1"]
    assert states(watch) == [State.HEALTHY, State.HEALTHY]


async def test_nvml_is_opened_more_and_more_rarely_for_a_gpu_that_stays_lost(
    watch: Watch, nvml: FakeNvml, clock: Clock
) -> None:
    nvml.on(1, "nvmlDeviceGetMemoryInfo", refuse(LOST))
    for _ in range(7200 // 30):
        clock.now += 30
        await watch.sweep()
    assert nvml.opened == 7  # after 60 s, and 120, 240, 480, 960, 1920 s more
    assert states(watch) == [State.HEALTHY, State.FAILED]


async def test_a_gpu_whose_every_call_is_slow_does_not_stall_the_others(nvml: FakeNvml) -> None:
    watch = Watch(nvml, 0.2, Rules(), time.monotonic)
    pause = threading.Event()
    for name in ("UtilizationRates", "Temperature", "PowerUsage", "EnforcedPowerLimit", "TotalEccErrors", "MigMode"):
        nvml.on(0, f"nvmlDeviceGet{name}", lambda *_: pause.wait(0.15) or refuse(3)())
    await watch.sweep()
    began = time.monotonic()
    await watch.sweep()
    assert time.monotonic() - began < 2
    assert answers(watch) == [Answer.HUNG, Answer.READ]
    await watch.close()


async def test_a_driver_that_stays_unusable_is_logged_once(
    watch: Watch, nvml: FakeNvml, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    nvml.answers["nvmlInit"] = refuse(NO_LIBRARY)
    for _ in range(5):
        clock.now += REOPEN_SECONDS
        await watch.sweep()
    assert [record.getMessage() for record in caplog.records] == ["NVML cannot be used"]


def garbled(*_: Any) -> Any:
    raise UnicodeDecodeError("ascii", b"\xff", 0, 1, "not ours")


@pytest.mark.parametrize(
    "name",
    [
        "nvmlInit",
        "nvmlDeviceGetCount",
        "nvmlDeviceGetHandleByIndex",
        "nvmlSystemGetDriverVersion",
        "nvmlDeviceGetUUID",
        "nvmlDeviceGetMemoryInfo",
        "nvmlDeviceGetComputeRunningProcesses",
        "nvmlEventSetCreate",
        "nvmlShutdown",
    ],
)
async def test_bindings_that_fail_in_a_way_of_their_own_do_not_end_the_agent(
    name: str, watch: Watch, nvml: FakeNvml
) -> None:
    nvml.answers[name] = garbled
    await watch.sweep()
    await watch.sweep()
    assert State.HEALTHY not in states(watch) or watch.driver.state is DriverState.USABLE


async def test_an_xid_reaches_the_verdict_of_its_gpu(watch: Watch, nvml: FakeNvml) -> None:
    await watch.sweep()
    nvml.events = [(1, 31), (1, 79)]
    async with asyncio.TaskGroup() as tasks:
        hearing = tasks.create_task(watch.hear_xids())
        async with asyncio.timeout(10):
            while [xid.number for xid in list(watch)[1].xids] != [31, 79]:
                await watch.sweep()
                await asyncio.sleep(0.01)
        hearing.cancel()
    assert states(watch) == [State.HEALTHY, State.FAILED]


async def test_an_xid_that_a_late_call_brings_is_not_lost(watch: Watch, nvml: FakeNvml) -> None:
    release = threading.Event()

    def late(*_: Any) -> Any:
        release.wait()
        return SimpleNamespace(device=0, eventType=8, eventData=79)

    await watch.sweep()
    nvml.answers["nvmlEventSetWait_v2"] = late
    async with asyncio.TaskGroup() as tasks:
        hearing = tasks.create_task(watch.hear_xids())
        await asyncio.sleep(1.0)  # beyond the wait and its deadline
        release.set()
        async with asyncio.timeout(10):
            while states(watch)[0] is not State.FAILED:
                await watch.sweep()
                await asyncio.sleep(0.01)
        hearing.cancel()
