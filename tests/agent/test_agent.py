"""A real agent process on the NVML stub, a real gRPC service, mTLS between them."""

import asyncio
import contextlib
import signal
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from tests.agent.stub import Orders
from tests.authority import HERE, Authority, tls
from tests.health.recorder import receiving
from tests.ports import free_port
from tidegate.config_tls import Tls
from tidegate.health.registry import Registry
from tidegate.health.reported import Condition, Driver, EngineAnswer, Gpu, Report

NODE = "gpu-7.example"


@contextlib.asynccontextmanager
async def agent(orders: Orders, *options: str, stderr: int | None = None) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run ``tidegate agent`` on the stub; it must end well on SIGTERM."""
    common = ("--interval", "0.2", "--nvml-deadline", "0.5", "--probe-deadline", "0.5")
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tidegate", "agent", *common, *options), env=orders.environment, stderr=stderr
    )
    try:
        yield process
        process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(process.wait(), 20) == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def until(registry: Registry, seen: Callable[[Report], bool], node: str = NODE) -> Report:
    """Wait until the last report of ``node`` shows what ``seen`` looks for."""
    async with asyncio.timeout(40):
        while (heard := registry.last(node)) is None or not seen(heard.report):  # noqa: ASYNC110 - polls what is pure
            await asyncio.sleep(0.02)
    return heard.report


def codes(gpu: Gpu) -> list[str]:
    return [reason.code for reason in gpu.reasons]


async def test_an_agent_reports_over_mtls_and_every_fault_arrives(orders: Orders, tmp_path: Path) -> None:
    ours, theirs = Authority(tmp_path, "ours"), Authority(tmp_path, "theirs")
    certificate, key = theirs.issue("agent", NODE)
    port, engine = free_port(), free_port()
    secured = Tls.model_validate(tls(ours, theirs))
    options = ["--control", f"{HERE}:{port}", "--node", NODE, "--engine", f"tcp://{HERE}:{engine}"]
    options += ["--certificate", str(certificate), "--key", str(key), "--ca", str(ours.certificate)]
    orders.give("gpus 2")
    async with receiving(port, secured) as (registry, recorder), agent(orders, *options):
        report = await until(registry, lambda report: len(report.gpus) == 2)
        assert (report.driver, report.driver_version, report.dropped) == (Driver.USABLE, "580.65.06", ())
        assert [gpu.condition for gpu in report.gpus] == [Condition.HEALTHY, Condition.HEALTHY]
        assert report.gpus[0].memory_total_bytes == 80 << 30
        assert (await until(registry, lambda report: bool(report.engines))).engines[0].answer is EngineAnswer.REFUSES

        server = await asyncio.start_server(lambda _, writer: writer.transport.abort(), HERE, engine)
        await until(registry, lambda report: report.engines[0].answer is EngineAnswer.ANSWERS)
        server.close()

        orders.give("gpus 2", "set ecc_uncorrected 0 3")
        report = await until(registry, lambda report: "ecc_uncorrected" in codes(report.gpus[0]))
        assert report.gpus[0].condition is Condition.DEGRADED

        orders.give("gpus 2", "xid 1 0 79")
        report = await until(registry, lambda report: "xid_79" in codes(report.gpus[0]))
        assert report.gpus[0].condition is Condition.FAILED
        assert [xid.number for xid in report.gpus[0].xids] == [79]
        assert report.gpus[1].condition is Condition.HEALTHY

        orders.give("gpus 2", "hang nvmlDeviceGetPowerUsage 1")
        report = await until(registry, lambda report: "nvml_hung" in codes(report.gpus[1]))
        assert report.gpus[1].condition is Condition.DEGRADED

        orders.give("gpus 2", "lost 1")
        report = await until(registry, lambda report: "gpu_lost" in codes(report.gpus[1]))
        assert report.gpus[1].condition is Condition.FAILED
        assert [xid.number for xid in report.gpus[0].xids] == [79], "an Xid is reported once by the driver"
        assert recorder.refusals == []


async def test_an_agent_without_a_driver_goes_on_and_says_so(orders: Orders) -> None:
    port = free_port()
    orders.give("init 9")
    async with receiving(port) as (registry, _), agent(orders, "--control", f"{HERE}:{port}", "--node", NODE):
        report = await until(registry, lambda report: report.sequence >= 3)
        assert (report.driver, report.gpus) == (Driver.NOT_LOADED, ())


async def test_an_agent_comes_back_to_a_control_plane_that_was_away(orders: Orders) -> None:
    port = free_port()
    async with agent(orders, "--control", f"{HERE}:{port}", "--node", NODE):
        async with receiving(port) as (registry, _):
            first = await until(registry, lambda report: bool(report.gpus))
        async with receiving(port) as (registry, _):
            second = await until(registry, lambda report: bool(report.gpus))
    assert second.boot_id == first.boot_id
    assert second.sequence > first.sequence


async def test_a_new_life_of_an_agent_has_a_new_boot_id_and_is_heard_at_once(orders: Orders) -> None:
    port = free_port()
    options = ("--control", f"{HERE}:{port}", "--node", NODE)
    async with receiving(port) as (registry, recorder):
        async with agent(orders, *options):
            first = await until(registry, lambda report: report.sequence >= 5)
        async with agent(orders, *options):
            second = await until(registry, lambda report: report.boot_id != first.boot_id)
        assert second.sequence < first.sequence
        assert second.machine_boot_id == first.machine_boot_id
        assert recorder.refusals == []
        assert NODE in recorder.ended


async def test_an_agent_cannot_speak_for_another_node(orders: Orders, tmp_path: Path) -> None:
    ours, theirs = Authority(tmp_path, "ours"), Authority(tmp_path, "theirs")
    certificate, key = theirs.issue("agent", NODE)
    port = free_port()
    options = ["--control", f"{HERE}:{port}", "--node", "gpu-8.example"]
    options += ["--certificate", str(certificate), "--key", str(key), "--ca", str(ours.certificate)]
    secured = Tls.model_validate(tls(ours, theirs))
    async with receiving(port, secured) as (registry, recorder), agent(orders, *options):
        await asyncio.wait_for(recorder.refused_once.wait(), 40)
        assert recorder.refusals[0] == "identity"
        assert len(registry) == 0


async def test_an_agent_that_reaches_nobody_ends_when_it_is_told(orders: Orders) -> None:
    options = ("--control", f"{HERE}:{free_port()}")
    async with agent(orders, *options, stderr=asyncio.subprocess.PIPE) as process, asyncio.timeout(40):
        assert process.stderr is not None
        while b"reports do not arrive" not in (line := await process.stderr.readline()):
            assert line
