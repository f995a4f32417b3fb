"""What Kubernetes' resources say of requests, obeyed behind a real Envoy."""

import asyncio
import contextlib
import json
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web

from tests.discovery.kubernetes_api import (
    OBJECTIVES,
    PODS,
    POOLS,
    REWRITES,
    KubernetesApi,
    inference_pool,
    of_pool,
    pod,
)
from tests.e2e.stack import Stack, fetch, until, up
from tests.e2e.streaming_fleet import Scene
from tests.e2e.test_discovery import discovering
from tests.e2e.test_scaling import kubernetes
from tests.ports import free_port

PATIENCE = 60.0


class NotingEngine:
    """Takes note of the models that it is asked for, and answers at once, or when it is told."""

    def __init__(self) -> None:
        self.port = free_port()
        self.models: Counter[str] = Counter()
        self.go = asyncio.Event()
        self.go.set()

    @contextlib.asynccontextmanager
    async def _running(self) -> Any:
        app = web.Application()
        app.router.add_get("/metrics", self._metrics)
        app.router.add_post("/{path:.*}", self._answer)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", self.port).start()
            yield
        finally:
            await runner.cleanup()

    @contextlib.contextmanager
    def running(self, scene: Scene) -> Iterator[None]:
        running = self._running()
        scene.do(running.__aenter__())
        try:
            yield
        finally:
            scene.loop.call_soon_threadsafe(self.go.set)
            scene.do(running.__aexit__(None, None, None))

    async def _metrics(self, _: web.Request) -> web.Response:
        return web.Response(text="vllm:num_requests_running 0\nvllm:num_requests_waiting 0\n")

    async def _answer(self, request: web.Request) -> web.Response:
        self.models[json.loads(await request.read())["model"]] += 1
        await self.go.wait()
        choice = {"index": 0, "message": {"role": "assistant", "content": "x"}, "finish_reason": "stop"}
        return web.json_response({"id": "1", "object": "chat.completion", "model": "m", "choices": [choice]})


async def asked(stack: Stack, model: str, headers: dict[str, str]) -> int:
    body = {"model": model, "messages": [{"role": "user", "content": "hi"}], "max_tokens": 4}
    async with (
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=PATIENCE)) as session,
        session.post(f"{stack.clients}/chat/completions", json=body, headers=headers) as answer,
    ):
        await answer.read()
        return answer.status


def waiting(stack: Stack) -> dict[str, int]:
    """Return how many requests wait, by class."""
    page = fetch(f"{stack.admin}/queue")[1]
    return {one["class"]: one["requests"] for queue in page["queues"] for one in queue["classes"]}


def test_objectives_and_rewrites_of_an_inference_pool_are_obeyed(tmp_path: Path) -> None:
    api, scene, engine = KubernetesApi(), Scene(), NotingEngine()
    api.objects.update({OBJECTIVES: {}, REWRITES: {}})
    api.put(POOLS, inference_pool("llama", {"app": "vllm"}, engine.port))
    api.put(PODS, pod("a", "127.0.0.1"))
    api.put(OBJECTIVES, of_pool("nightly", "llama", priority=-10), of_pool("urgent", "llama", priority=10))
    targets = [{"modelRewrite": "stable", "weight": 75}, {"modelRewrite": "new", "weight": 25}]
    rule = {"matches": [{"model": {"type": "Exact", "value": "food"}}], "targets": targets}
    api.put(REWRITES, of_pool("canary", "llama", rules=[rule]))
    config = discovering(
        kubernetes={"url": api.url, "namespace": "ml", "inference_pool": "llama", "token_file": None, "ca": None}
    )
    config["pools"][0] |= {"queue": {"max_running": 1, "max_wait_seconds": 60, "batch_max_wait_seconds": 60}}
    with scene.running(), kubernetes(scene, api), engine.running(scene), up(tmp_path, config) as stack:
        statuses = Counter(scene.do(asked(stack, "food", {})) for _ in range(40))
        assert statuses == {200: 40}
        assert engine.models.total() == 40
        assert abs(engine.models["new"] - 10) <= 1, engine.models
        assert engine.models["stable"] == 40 - engine.models["new"]
        assert scene.do(asked(stack, "other", {})) == 200
        assert engine.models["other"] == 1, "a model that no rewrite names stays as it is"

        scene.loop.call_soon_threadsafe(engine.go.clear)
        with ThreadPoolExecutor(6) as threads:

            def ask(**headers: str) -> Any:
                named = {name.replace("_", "-"): value for name, value in headers.items()}
                return threads.submit(scene.do, asked(stack, "other", named), PATIENCE)

            running = [ask()]
            until(lambda: engine.models["other"] == 2, PATIENCE, "the engine has all it may")
            for headers, known in (
                ({"x_gateway_inference_objective": "nightly"}, {"interactive": 0, "batch": 1}),
                ({"x_llm_d_inference_objective": "nightly"}, {"interactive": 0, "batch": 2}),
                ({"x_gateway_inference_objective": "urgent"}, {"interactive": 1, "batch": 2}),
                ({"x_gateway_inference_objective": "unheard-of"}, {"interactive": 2, "batch": 2}),
                ({"x_tidegate_objective": "nightly"}, {"interactive": 3, "batch": 2}),
            ):
                running.append(ask(**headers))
                until(lambda k=known: waiting(stack) == k, PATIENCE, str((headers, known)))  # type: ignore[misc]
            scene.loop.call_soon_threadsafe(engine.go.set)
            assert [one.result(PATIENCE) for one in running] == [200] * 6
