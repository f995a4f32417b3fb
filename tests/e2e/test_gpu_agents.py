"""Real GPU agents on a stand-in for the driver, behind a real Envoy: who gets requests, and who does not."""

import contextlib
import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import yaml

from tests.agent.stub import build
from tests.authority import Authority, tls
from tests.e2e.gpu_nodes import FULL, GpuNode
from tests.e2e.stack import Process, Stack, configuration, engines, fetch, tidegate, until, up
from tests.ports import free_port

LARGE = "word " * 16_000
"""A prompt of about 16,000 tokens, 2 GB of KV cache for the model that is assumed."""

NUMBERS = itertools.count()


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
    """Ask so often, each time for something that no engine has cached; return how often each port answered."""
    answered: Counter[int] = Counter()
    for _ in range(times):
        status, answer, headers = stack.ask(f"{next(NUMBERS)} {content}", max_tokens=2)
        assert status == 200, answer
        answered[int(headers["x-served-by"].rpartition(":")[2])] += 1
    return answered


def is_full(stack: Stack, host: GpuNode) -> bool:
    """Return whether it is known that a GPU of ``host`` is nearly full."""
    return 0 < stack.total("tidegate_gpu_memory_free_bytes", node=host.name) < FULL / 50


def test_a_gpu_that_is_lost_one_that_is_full_and_an_agent_that_is_silent_cost_what_they_should(tmp_path: Path) -> None:
    with guarded(tmp_path, 3) as (stack, (sick, full, silent)):
        everybody = {sick.engine, full.engine, silent.engine}
        assert set(served(stack, 6, LARGE)) == everybody
        full.orders.give("gpus 1", f"set memory_used 0 {FULL * 99 // 100}")
        silent.kill()
        sick.orders.give("gpus 1", "xid 1 0 79")
        until(lambda: not served(stack, 3)[sick.engine], 5, "nothing goes to a GPU that fell off the bus")
        until(lambda: is_full(stack, full), 10, "it is known to be full")
        until(lambda: not stack.total("tidegate_agent_up", node=silent.name), 10, "silence is noticed")
        # Where VRAM is full, there is room for small requests; and silence is not death, though it gets half.
        assert served(stack, 3, LARGE) == {silent.engine: 3}
        assert set(served(stack, 12)) == {full.engine, silent.engine}
        assert stack.total("tidegate_gpu_reason", node=sick.name, reason="xid_79") == 1
        assert stack.total("tidegate_gpu_memory_total_bytes", node=silent.name) == 0, "unknown is not zero"
        _, page, _ = fetch(f"{stack.admin}/agents")
        told = {node["node"]: node for node in page["nodes"]}
        assert told[sick.name]["gpus"][0]["reasons"][0]["code"] == "xid_79"
        assert (told[full.name]["silent"], told[silent.name]["silent"]) == (False, True)
        # The GPU is reset, and its agent started anew.
        for host in (sick, full, silent):
            host.orders.give("gpus 1")
        sick.restart()
        silent.restart()
        until(lambda: set(served(stack, 6, LARGE)) == everybody, 40, "all get requests again")
        until(lambda: stack.total("tidegate_agent_up") == 3, 20, "all agents are heard again")


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
