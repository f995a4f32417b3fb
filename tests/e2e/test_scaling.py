"""Fleets that grow and shrink under load, behind a real Envoy: no request is lost, and nobody new is overrun."""

import asyncio
import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.discovery.kubernetes_api import PODS, POOLS, KubernetesApi, inference_pool, pod
from tests.e2e.stack import Stack, fetch, until
from tests.e2e.stack import up as tidegate_up
from tests.e2e.streaming_fleet import Scene, StreamingEngine, fleet, waited_for
from tests.e2e.test_discovery import discovering, in_envoy, write_places
from tests.ports import free_port

CLIENTS = 24
PATIENCE = 60.0
PRE_STOP_SECONDS = 1.0
"""Half of a fleet that closed its ports in the moment in which it is marked could be all that a request may try."""


def eight(loading: Sequence[int] = ()) -> list[StreamingEngine]:
    """Return eight engines at addresses of their own and one port, as pods have them."""
    port = free_port()
    return [StreamingEngine(f"127.0.0.{11 + at}:{port}", loading=at in loading) for at in range(8)]


def places(engines: Sequence[StreamingEngine]) -> set[str]:
    return {engine.address for engine in engines}


def told(stack: Stack, engine: StreamingEngine) -> list[str]:
    """Return what became of an endpoint, the oldest first."""
    return [one["event"] for one in fetch(f"{stack.admin}/events?address={engine.address}")[1]["events"]]


@contextlib.contextmanager
def kubernetes(scene: Scene, api: KubernetesApi) -> Iterator[None]:
    """Run ``api`` in the scene's loop."""
    over, ready = asyncio.Event(), asyncio.Event()

    async def serve() -> None:
        async with api.running():
            ready.set()
            await over.wait()

    serving = scene.begin(serve())
    try:
        scene.do(ready.wait())
        yield
    finally:
        scene.loop.call_soon_threadsafe(over.set)
        serving.result(30)


def busy(engines: Sequence[StreamingEngine]) -> Callable[[], bool]:
    return lambda: all(engine.running for engine in engines)


def test_a_fleet_of_pods_that_grows_to_eight_and_loses_half_of_them_loses_no_request(tmp_path: Path) -> None:
    api, scene, engines = KubernetesApi(), Scene(), eight(loading=[7])
    names = {engine.address: f"pod-{at}" for at, engine in enumerate(engines)}

    def made(engine: StreamingEngine, more: Mapping[str, str]) -> dict[str, Any]:
        one = pod(names[engine.address], engine.address.rpartition(":")[0])
        # The same pod, whatever is said of it.
        one["metadata"] = {**one["metadata"], "uid": f"uid-of-{names[engine.address]}", **more}
        return one

    async def put(*pods: StreamingEngine, **more: str) -> None:
        api.put(PODS, *(made(engine, more) for engine in pods))

    async def leave(engine: StreamingEngine) -> None:
        """Do as the kubelet does: wait in the pod's ``preStop``, then SIGTERM; it is gone when its engine has ended."""
        await asyncio.sleep(PRE_STOP_SECONDS)
        await engine.terminate()
        api.delete(PODS, names[engine.address])

    old, new, late, leaving = engines[:2], engines[2:7], engines[7], engines[:4]
    api.put(POOLS, inference_pool("llama", {"app": "vllm"}, int(engines[0].address.rpartition(":")[2])))
    config = discovering(
        kubernetes={"url": api.url, "namespace": "ml", "inference_pool": "llama", "token_file": None, "ca": None}
    )
    config["health"] = {"warm_up_seconds": 2.0}
    with scene.running(), kubernetes(scene, api), fleet(scene, *engines):
        scene.do(put(*old))
        with tidegate_up(tmp_path, config) as stack, scene.asking(stack, CLIENTS):
            until(lambda: sum(engine.running for engine in old) == CLIENTS, PATIENCE, "two bear it all")
            crowd = max(engine.most for engine in old)

            scene.do(put(*new, late))
            until(lambda: all(told(stack, one)[-1:] == ["healthy"] for one in new), PATIENCE, "five have warmed up")
            assert all(told(stack, one) == ["joining", "warming", "healthy"] for one in new)
            until(busy(new), PATIENCE, "all of them serve")
            assert max(one.most for one in new) <= crowd / 2, "nobody new was overrun"
            assert told(stack, late) == ["joining"]
            assert in_envoy(stack) == places([*old, *new])
            assert (late.begun, late.too_early) == (0, 0), "it gets nothing before it is ready"
            late.loading = False
            until(lambda: late.running > 0, PATIENCE, "it serves once it is")

            until(busy(leaving), PATIENCE, "answers run on all that leave")
            scene.do(put(*leaving, deletionTimestamp="2026-11-30T00:00:00Z"))
            for engine in leaving:
                scene.begin(leave(engine))
            until(lambda: in_envoy(stack) == places(engines[4:]), PATIENCE, "half of them are gone from Envoy")
            assert all("draining" in told(stack, one) for one in leaving)
            until(lambda: len(api.objects[PODS]) == 4, PATIENCE, "their engines have ended")
            until(lambda: stack.total("tidegate_discovery_endpoints") == 4, PATIENCE, "nobody knows them any more")
            waited_for(scene)
        assert scene.outcomes.keys() == {"whole"}, scene.outcomes
        assert [engine.begun for engine in leaving] == [engine.ended for engine in leaving], "no answer was cut off"
        assert late.too_early == 0


def test_half_of_a_fleet_that_a_file_lists_no_more_ends_its_answers(tmp_path: Path) -> None:
    file, scene, engines = tmp_path / "endpoints.yaml", Scene(), eight()
    leaving, staying = engines[:4], engines[4:]
    write_places(file, *places(engines))
    with scene.running(), fleet(scene, *engines):
        with tidegate_up(tmp_path, discovering(file={"path": str(file)})) as stack, scene.asking(stack, CLIENTS):
            until(busy(engines), PATIENCE, "answers run everywhere")
            write_places(file, *places(staying))
            until(lambda: in_envoy(stack) == places(staying), PATIENCE, "half of them are gone from Envoy")
            until(lambda: not any(engine.running for engine in leaving), PATIENCE, "they have drained")
            begun = [engine.begun for engine in leaving]
            for engine in leaving:
                scene.do(engine.terminate())
            waited_for(scene)
            assert [engine.begun for engine in leaving] == begun, "nothing new got there"
            assert stack.total("tidegate_discovery_endpoints") == 4
        assert scene.outcomes.keys() == {"whole"}, scene.outcomes
        assert [engine.begun for engine in engines] == [engine.ended for engine in engines]
