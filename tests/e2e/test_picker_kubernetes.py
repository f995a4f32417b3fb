"""The endpoint picker of an InferencePool: its pods and its rewrites are read from Kubernetes, and obeyed."""

import asyncio
from pathlib import Path

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
from tests.e2e.picker_gateway import gateway

CHAT = {"model": "food", "messages": [{"role": "user", "content": "hello"}]}


async def test_the_pods_and_the_rewrites_of_an_inference_pool_are_obeyed(tmp_path: Path) -> None:
    api = KubernetesApi()
    api.objects.update({OBJECTIVES: {}, REWRITES: {}})
    api.put(POOLS, inference_pool("llama", {"app": "vllm"}, 1))
    rule = {"matches": [{"model": {"value": "food"}}], "targets": [{"modelRewrite": "drink"}]}
    api.put(REWRITES, of_pool("alias", "llama", rules=[rule]))
    source = {"url": api.url, "namespace": "ml", "inference_pool": "llama", "token_file": None, "ca": None}
    pool = {"name": "default", "engine": "none", "discovery": {"kubernetes": source, "allow": ["127.0.0.0/8"]}}
    async with api.running(), gateway(tmp_path, "h2", engine_count=1, pools=[pool]) as running:
        (engine,) = running.engines
        place = f"127.0.0.1:{engine.port}"
        async with running.client.post(running.chat, json=CHAT) as answer:
            assert answer.status == 503, "nobody is there yet"
        # The pool comes to mean another port, which is seen within ten seconds.
        api.put(POOLS, inference_pool("llama", {"app": "vllm"}, engine.port))
        api.put(PODS, pod("a", "127.0.0.1"))
        async with asyncio.timeout(60):
            while await running.sum("tidegate_endpoint_health", endpoint=place) != 1:  # noqa: ASYNC110
                await asyncio.sleep(0.1)
        async with running.client.post(running.chat, json=CHAT) as answer:
            told = await answer.json()
        assert (answer.status, told["model"], told["usage"]["prompt_tokens"]) == (200, "food", 11)
        await running.until("tidegate_requests_total", 1, outcome="ok", model="drink")
        assert [got["headers"]["x-gateway-destination-endpoint"] for got in engine.got] == [place]
