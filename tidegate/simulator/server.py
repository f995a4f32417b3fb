"""Simulated engines as HTTP servers, each on a port of its own."""

import asyncio
import logging
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import NoReturn

import msgspec
from aiohttp import web

from tidegate.simulator import errors, faults, metrics_page
from tidegate.simulator.batching import BatchingEngine
from tidegate.simulator.faults import FaultError, Faults
from tidegate.simulator.inference import Inference
from tidegate.simulator.live import LiveEngine, nobody
from tidegate.simulator.settings import EngineSettings

SERVED_BY = "x-served-by"
"""Response header that names the simulated engine, ``host:port``. Real engines have none."""

_MAX_BODY_BYTES = 256 * 2**20
_KEEPALIVE_SECONDS = 5.0
"""vLLM closes a connection that was idle for so long."""
_SHUTDOWN_SECONDS = 0.01
"""Grace for what is under way when the engine stops; 0 would mean for ever."""

_log = logging.getLogger(__name__)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class ListenError(Exception):
    """An address cannot be listened on; one line that says which and why."""


async def serve(
    engines: Sequence[EngineSettings],
    stop: asyncio.Event,
    ready: Callable[[Sequence[str]], object] = lambda addresses: addresses,
) -> None:
    """Run ``engines`` until ``stop`` is set; then end at once, cutting what is under way.

    ``ready`` is called once, with their addresses (``host:port``), when all of them listen.

    Raises:
        ListenError: an address is taken or not ours; nothing was started.
    """
    async with AsyncExitStack() as stack:
        listening = [await stack.enter_async_context(_listening(settings)) for settings in engines]
        async with asyncio.TaskGroup() as tasks:
            steps = [tasks.create_task(routes.engine.run(), name=routes.address) for routes in listening]
            for routes in listening:
                _log.info("simulated engine started", extra={"fields": routes.describe()})
            ready([routes.address for routes in listening])
            await stop.wait()
            for task in steps:
                task.cancel()
        for routes in listening:
            _log.info("simulated engine stopped", extra={"fields": {"address": routes.address}})


@asynccontextmanager
async def _listening(settings: EngineSettings) -> AsyncIterator["_Routes"]:
    model = BatchingEngine(settings.profile, settings.context_tokens, settings.max_queue)
    async with _publishing(model, settings) as flush, _answering(model, settings, flush) as routes:
        yield routes


@asynccontextmanager
async def _publishing(model: BatchingEngine, settings: EngineSettings) -> AsyncIterator[Callable[[], None]]:
    """Publish what changes in the KV cache, where that is wanted; yield what sends it off."""
    if settings.kv_events_port is None:
        yield nobody
        return
    # Here because the package is optional.
    import zmq  # noqa: PLC0415

    from tidegate.simulator.kv_publisher import KvPublisher  # noqa: PLC0415

    try:
        publisher = KvPublisher(
            settings.host, settings.kv_events_port, settings.kv_events_replay_port, settings.kv_events_topic
        )
    except zmq.ZMQError as error:
        raise ListenError(f"cannot publish KV events on {settings.host}: {error.strerror}") from None
    model.cache.listener = publisher
    try:
        async with asyncio.TaskGroup() as tasks:
            repeating = tasks.create_task(publisher.repeat())
            yield publisher.flush
            repeating.cancel()
    finally:
        publisher.close()


@asynccontextmanager
async def _answering(
    model: BatchingEngine, settings: EngineSettings, flush: Callable[[], None]
) -> AsyncIterator["_Routes"]:
    engine = LiveEngine(model, settings.speed, flush)
    engine.faults = Faults(fail_rate=settings.fail_rate, hang=settings.hang)
    routes = _Routes(engine, settings, flush)
    runner = web.AppRunner(
        routes.application(),
        access_log=None,
        handler_cancellation=True,  # a client that leaves ends its request
        keepalive_timeout=_KEEPALIVE_SECONDS,
        shutdown_timeout=_SHUTDOWN_SECONDS,
    )
    await runner.setup()
    try:
        routes.address = await _listen(runner, settings)
        yield routes
    finally:
        await runner.cleanup()


async def _listen(runner: web.AppRunner, settings: EngineSettings) -> str:
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    try:
        await web.TCPSite(runner, settings.host, settings.port).start()
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise ListenError(f"cannot listen on {host}:{settings.port}: {reason}") from None
    return f"{host}:{runner.addresses[0][1]}"


class _Routes:
    """The HTTP face of one engine."""

    def __init__(self, engine: LiveEngine, settings: EngineSettings, flush: Callable[[], None]) -> None:
        self.address = ""
        self._flush = flush
        self.engine = engine
        self._settings = settings
        self._inference = Inference(engine, settings)
        self._started_at = time.time()

    def describe(self) -> dict[str, str | float]:
        settings, profile = self._settings, self._settings.profile
        return {
            "address": self.address,
            "profile": profile.name,
            "model": settings.model,
            "max_model_len": settings.context_tokens,
            "num_gpu_blocks": profile.num_gpu_blocks,
            "max_num_seqs": profile.max_num_seqs,
            "speed": settings.speed,
        }

    def application(self) -> web.Application:
        app = web.Application(client_max_size=_MAX_BODY_BYTES, middlewares=[self._guard])
        app.on_response_prepare.append(self._sign)
        inference, get = self._inference, self._get
        app.add_routes(
            [
                web.post("/v1/chat/completions", self._counted(inference.chat)),
                web.post("/v1/completions", self._counted(inference.completion)),
                web.post("/v1/embeddings", self._counted(inference.embedding)),
                get("/v1/models", self._models),
                get("/health", self._health),
                get("/ping", self._health),
                web.post("/ping", self._health),
                get("/version", self._version),
                get("/load", self._load),
                get("/metrics", self._metrics),
                web.post("/reset_prefix_cache", self._reset_prefix_cache),
                get("/fault", self._faults),
                web.post("/fault", self._set_faults),
            ]
        )
        return app

    @staticmethod
    def _get(path: str, handler: Handler) -> web.RouteDef:
        return web.get(path, handler, allow_head=False)  # nor does vLLM

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        if self.engine.faults.hang and request.path != "/fault":
            await asyncio.Event().wait()  # until the client leaves
        try:
            return await handler(request)
        except errors.ApiError as error:
            return error.response()
        except web.HTTPException as error:
            return errors.framework_error(error)

    async def _sign(self, _: web.Request, response: web.StreamResponse) -> None:
        response.headers[SERVED_BY] = self.address

    def _counted(self, handler: Handler) -> Handler:
        async def counted(request: web.Request) -> web.StreamResponse:
            self._inference.inflight += 1
            try:
                if (poison := self.engine.faults.poison) and poison.encode() in await request.read():
                    _log.error("killed by a request", extra={"fields": {"address": self.address}})
                    _die()
                return await handler(request)
            finally:
                self._inference.inflight -= 1

        return counted

    async def _models(self, _: web.Request) -> web.Response:
        created = int(self._started_at)
        permission = {"id": "modelperm-simulated", "object": "model_permission", "created": created}
        allowed = {"allow_create_engine": False, "allow_sampling": True, "allow_logprobs": True}
        more = {"allow_search_indices": False, "allow_view": True, "allow_fine_tuning": False}
        scope = {"organization": "*", "group": None, "is_blocking": False}
        model = {
            "id": self._settings.model,
            "object": "model",
            "created": created,
            "owned_by": "vllm",
            "root": self._settings.model,
            "parent": None,
            "max_model_len": self._settings.context_tokens,
            "permission": [permission | allowed | more | scope],
        }
        return _json({"object": "list", "data": [] if self.engine.faults.unloaded else [model]})

    async def _health(self, _: web.Request) -> web.Response:
        if self.engine.faults.slow_health:
            await asyncio.sleep(self.engine.faults.slow_health)
        return web.Response(status=503 if self.engine.faults.unhealthy else 200)

    async def _version(self, _: web.Request) -> web.Response:
        return _json({"version": "0.32.0"})

    async def _load(self, _: web.Request) -> web.Response:
        return _json({"server_load": self._inference.inflight})

    async def _metrics(self, request: web.Request) -> web.StreamResponse:
        page = metrics_page.render(self._settings, self.engine.gauges, self.engine.model.counters, self._started_at)
        headers = {"Content-Type": metrics_page.CONTENT_TYPE}
        if not self.engine.faults.slow_metrics:
            return web.Response(body=page.encode(), headers=headers)
        trickle = web.StreamResponse(headers=headers)
        await trickle.prepare(request)
        for byte in page.encode():  # until the client leaves
            await trickle.write(bytes([byte]))
            await asyncio.sleep(1.0)
        return trickle

    async def _reset_prefix_cache(self, _: web.Request) -> web.Response:
        """Forget the KV cache, as vLLM does in its development mode; not while requests run."""
        done = self.engine.model.cache.clear()
        self._flush()
        return web.Response(status=200 if done else 503)

    async def _faults(self, _: web.Request) -> web.Response:
        return _json(msgspec.structs.asdict(self.engine.faults))

    async def _set_faults(self, request: web.Request) -> web.Response:
        try:
            changed, die = faults.change(self.engine.faults, await request.read())
        except FaultError as error:
            raise errors.ApiError(400, "BadRequestError", str(error)) from None
        self.engine.faults = changed
        fields = {"address": self.address, "faults": "die" if die else changed.describe()}
        _log.warning("faults changed", extra={"fields": fields})
        if die:
            _die()
        return await self._faults(request)


def _json(body: object) -> web.Response:
    return errors.json_response(errors.compact(body))


def _die() -> NoReturn:
    """End the process as a crash would: nothing is flushed, answered or closed in order."""
    os._exit(1)
