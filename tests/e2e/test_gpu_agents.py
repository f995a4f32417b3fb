"""Real GPU agents on a stand-in for the driver, behind a real Envoy: who gets requests, and who does not."""

import contextlib
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import yaml

from tests.agent.stub import build
from tests.authority import Authority, tls
from tests.e2e.gpu_nodes import FULL, GpuNode
from tests.e2e.stack import Process, Stack, configuration, engines, fetch, tidegate, until, up
from tests.ports import free_port

LARGE = "word " * 12_000
"""A prompt of about 12,000 tokens, 1.6 GB of KV cache for the model that is assumed."""


@contextlib.contextmanager
def nodes(folder: Path, ports: Sequence[int], port: int, ours: Authority, theirs: Authority) -> Iterator[list[GpuNode]]:
    """Yield a GPU host for the engine at each of ``ports``; its agent runs until the end."""
    (folder / "nvml").mkdir()
    library = build(folder / "nvml")
    hosts = [
        GpuNode(f"gpu-{number}.example", folder, library, port, engine, (ours, theirs))
        for number, engine in enumerate(ports, 1)
    ]
    try:
        for host in hosts:
            host.start()
        yield hosts
    finally:
        for host in hosts:
            host.kill()


@contextlib.contextmanager
def guarded(folder: Path, number: int) -> Iterator[tuple[Stack, list[GpuNode]]]:
    """Run a stack of simulated engines, each on a host of its own with an agent that shows a certificate."""
    ours, theirs = Authority(folder, "ours"), Authority(folder, "theirs")
    with engines(folder, *["h100"] * number) as ports:
        config = configuration(ports, policy="round_robin")
        files = tls(ours, theirs)
        del files["envoy"]
        config["agents"] = {"port": free_port(), "tls": files}
        config["pools"][0]["vram"] = {"judged": "headroom"}
        for at, endpoint in enumerate(config["pools"][0]["endpoints"], 1):
            endpoint["node"] = f"gpu-{at}.example"
        with (
            up(folder, config) as stack,
            nodes(folder, ports, config["agents"]["port"], ours, theirs) as hosts,
        ):
            until(lambda: stack.total("tidegate_agent_up") == number, 20, "all agents are heard")
            yield stack, hosts


def served(stack: Stack, times: int, content: str = "hello") -> Counter[int]:
    """Ask so often; return how often the engine at each port answered."""
    answered: Counter[int] = Counter()
    for _ in range(times):
        status, answer, headers = stack.ask(content)
        assert status == 200, answer
        answered[int(headers["x-served-by"].rpartition(":")[2])] += 1
    return answered


def room(stack: Stack, host: GpuNode) -> bool:
    """Return whether it is known that a GPU of ``host`` is nearly full."""
    return stack.total("tidegate_gpu_memory_free_bytes", node=host.name) < FULL / 50


def test_a_node_with_full_vram_gets_small_requests_and_no_large_ones_and_a_silent_agent_costs_nothing(
    tmp_path: Path,
) -> None:
    with guarded(tmp_path, 2) as (stack, (full, other)):
        assert set(served(stack, 4, LARGE)) == {full.engine, other.engine}
        full.orders.give("gpus 1", f"set memory_used 0 {FULL * 99 // 100}")
        until(lambda: room(stack, full), 10, "it is reported")
        assert served(stack, 4, LARGE) == {other.engine: 4}
        assert set(served(stack, 4)) == {full.engine, other.engine}
        full.orders.give("gpus 1")
        until(lambda: not room(stack, full), 10, "it has room again")
        assert set(served(stack, 4, LARGE)) == {full.engine, other.engine}
        # Silence is not death.
        full.kill()
        until(lambda: stack.total("tidegate_agent_up", node=full.name) == 0, 10, "its silence is noticed")
        assert stack.total("tidegate_gpu_memory_total_bytes", node=full.name) == 0
        assert stack.total("tidegate_endpoint_ejected") == 0
        assert full.engine in served(stack, 8)


def test_a_gpu_that_fell_off_the_bus_costs_its_endpoint_all_requests_until_it_was_reset(tmp_path: Path) -> None:
    with guarded(tmp_path, 3) as (stack, (sick, *_)):
        assert sick.engine in served(stack, 6)
        began = time.monotonic()
        sick.orders.give("gpus 1", "xid 1 0 79")
        until(lambda: not served(stack, 6)[sick.engine], 5, "nothing goes there any more")
        assert time.monotonic() - began < 5
        assert served(stack, 12)[sick.engine] == 0
        _, page, _ = fetch(f"{stack.admin}/agents")
        (told,) = [node for node in page["nodes"] if node["node"] == sick.name]
        assert told["gpus"][0]["reasons"][0]["code"] == "xid_79"
        assert stack.total("tidegate_gpu_reason", node=sick.name, reason="xid_79") == 1
        # The GPU was reset, and its agent started anew.
        sick.orders.give("gpus 1")
        sick.restart()
        until(lambda: served(stack, 6)[sick.engine] > 0, 40, "it gets requests again")


def test_an_agent_with_a_certificate_that_is_not_its_nodes_changes_nothing(tmp_path: Path) -> None:
    ours, theirs, strangers = (Authority(tmp_path, name) for name in ("ours", "theirs", "strangers"))
    config = configuration([free_port()])
    files = tls(ours, theirs)
    del files["envoy"]
    config["agents"] = {"port": free_port(), "tls": files}
    config["pools"][0]["endpoints"][0]["node"] = "gpu-1.example"
    file = tmp_path / "tidegate.yaml"
    file.write_text(yaml.safe_dump(config))
    (tmp_path / "nvml").mkdir()
    library, port = build(tmp_path / "nvml"), config["agents"]["port"]
    liar = GpuNode("gpu-1.example", tmp_path / "liar", library, port, 1, (ours, theirs), "gpu-2.example")
    stranger = GpuNode("gpu-1.example", tmp_path / "stranger", library, port, 1, (ours, strangers))
    serve = Process(tidegate("serve", "--config", str(file)), tmp_path / "serve.log")
    stack = Stack(tmp_path, config, serve)
    try:
        for host in (liar, stranger):
            host.orders.give("gpus 1", "lost 0")
            host.start()
        until(lambda: "msg=ready" in stack.log(), 20, "the control plane serves")
        until(lambda: stack.total("tidegate_agent_reports_total", outcome="identity") > 0, 20, "one is refused")
        until(lambda: "reports do not arrive" in stranger.log, 20, "the other does not get through")
        assert stack.total("tidegate_agent_up") == 0
        assert stack.total("tidegate_agent_reports_total", outcome="taken") == 0
        honest = GpuNode("gpu-1.example", tmp_path / "honest", library, port, 1, (ours, theirs))
        honest.start()
        try:
            until(lambda: stack.total("tidegate_agent_up") == 1, 20, "its own agent is heard")
        finally:
            honest.kill()
        assert stack.total("tidegate_gpu_state", state="failed") == 0
    finally:
        for host in (liar, stranger):
            host.kill()
        serve.kill()
