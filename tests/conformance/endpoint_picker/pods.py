"""Engines that do nothing but tell how busy they are, as vLLM does."""

import asyncio
import contextlib
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from aiohttp import web

SCRAPED_SECONDS = 20.0


@dataclass
class Pod:
    """One engine.

    Attributes:
        address: its ``ip:port``.
        queue: requests that wait there.
        kv: the share of its KV cache that is in use.
        adapters: the LoRA adapters that are loaded.
        scrapes: how often it was asked.
    """

    address: str
    queue: int = 0
    kv: float = 0.0
    adapters: tuple[str, ...] = ()
    scrapes: int = 0

    def page(self) -> str:
        """Return what it tells."""
        self.scrapes += 1
        labels = 'engine="0",model_name="m"'
        loaded = ",".join(self.adapters)
        return (
            "# TYPE vllm:num_requests_running gauge\n"
            f"vllm:num_requests_running{{{labels}}} 0\n"
            "# TYPE vllm:num_requests_waiting gauge\n"
            f"vllm:num_requests_waiting{{{labels}}} {self.queue}\n"
            "# TYPE vllm:kv_cache_usage_perc gauge\n"
            f"vllm:kv_cache_usage_perc{{{labels}}} {self.kv}\n"
            "# TYPE vllm:lora_requests_info gauge\n"
            f'vllm:lora_requests_info{{max_lora="0",running_lora_adapters="{loaded}",waiting_lora_adapters=""}} '
            f"{time.time()}\n"
            "# TYPE vllm:cache_config_info gauge\n"
            'vllm:cache_config_info{block_size="16",num_gpu_blocks="1000"} 1\n'
        )


@dataclass
class Pods:
    """All of them, in order."""

    all: Sequence[Pod]
    loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.new_event_loop)

    @property
    def addresses(self) -> list[str]:
        """Their addresses."""
        return [pod.address for pod in self.all]

    async def tell(self, *loads: tuple[int, float] | tuple[int, float, Sequence[str]]) -> list[str]:
        """Have the first pods tell these loads (queue, KV usage, adapters), and the others be overloaded.

        Returns:
            the addresses of the first pods, once the picker must know what all of them tell.
        """
        for number, pod in enumerate(self.all):
            pod.queue, pod.kv, pod.adapters = 1000, 0.99, ()
            if number < len(loads):
                pod.queue, pod.kv = loads[number][:2]
                pod.adapters = tuple(loads[number][2]) if len(loads[number]) > 2 else ()  # type: ignore[misc]
        before = [pod.scrapes for pod in self.all]
        async with asyncio.timeout(SCRAPED_SECONDS):
            # The next scrape may have begun before; the one after it has not.
            while any(pod.scrapes < seen + 2 for pod, seen in zip(self.all, before, strict=True)):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        await asyncio.sleep(0.05)
        return self.addresses[: len(loads)]

    @contextlib.contextmanager
    def serving(self) -> Iterator["Pods"]:
        """Serve them, in a thread."""
        over, started = asyncio.Event(), threading.Event()
        thread = threading.Thread(target=self.loop.run_until_complete, args=(self._serve(over, started),))
        thread.start()
        try:
            assert started.wait(10), f"the pods cannot be served at {', '.join(self.addresses)}"
            yield self
        finally:
            self.loop.call_soon_threadsafe(over.set)
            thread.join(10)
            self.loop.close()

    async def _serve(self, over: asyncio.Event, started: threading.Event) -> None:
        async with contextlib.AsyncExitStack() as running:
            for pod in self.all:
                runner = web.AppRunner(_app(pod), shutdown_timeout=0.1, access_log=None)
                await runner.setup()
                running.push_async_callback(runner.cleanup)
                host, _, port = pod.address.rpartition(":")
                await web.TCPSite(runner, host.strip("[]"), int(port)).start()
            started.set()
            await over.wait()


def _app(pod: Pod) -> web.Application:
    async def answer(request: web.Request) -> web.Response:
        return web.Response(text=pod.page() if request.path == "/metrics" else "ok\n")

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    return app
