"""The source ``consul``: the instances of a service, by blocking queries.

The rules for its index (https://developer.hashicorp.com/consul/api-docs/features/blocking): one that goes backwards, or
is not above 0, begins anew; and questions are spaced, because a query for a service that is not there may not block.
"""

import asyncio
from collections.abc import Coroutine, Sequence
from random import Random
from typing import Any
from urllib.parse import quote

import aiohttp
import msgspec

from tidegate import addresses
from tidegate.config_discovery import ConsulSource
from tidegate.discovery import http, labels, nested
from tidegate.discovery.contract import Backoff, Found, Reset, Tell, jittered

SPACING_SECONDS = 1.25
"""Between two questions, before jitter, which leaves at least 0.9 s."""

ANSWER_SECONDS = 10.0
"""How long an answer may take beyond the time that the question itself waits."""

META = "tidegate-"
"""What the keys of a service's metadata begin with that are read (see ``labels``)."""

_RANK = {"passing": 0, "warning": 1}
_WORST = {"passing": 0, "warning": 1, "any": 2}


class _Node(msgspec.Struct, rename="pascal"):
    node: str = ""
    address: str = ""


class _Weights(msgspec.Struct, rename="pascal"):
    passing: int = 1
    warning: int = 1


class _Service(
    msgspec.Struct, rename={"id": "ID", "address": "Address", "port": "Port", "meta": "Meta", "weights": "Weights"}
):
    id: str
    port: int
    address: str = ""
    meta: dict[str, str] | None = None
    weights: _Weights | None = None


class _Check(msgspec.Struct, rename="pascal"):
    status: str = "critical"


class _Instance(msgspec.Struct, rename="pascal"):
    node: _Node
    service: _Service
    checks: list[_Check] | None = None


def parse(text: bytes, health: str) -> Reset:
    """Return the instances in ``text``, an answer of ``/v1/health/service``, whose health is ``health`` or better.

    An instance that cannot be read is left out, and costs the others nothing.

    Raises:
        msgspec.DecodeError: the whole is no such answer.
    """
    found: dict[str, Found] = {}
    for raw in nested.decode(text, list[msgspec.Raw]):
        try:
            instance = nested.decode(raw, _Instance)
            rank = _rank(instance.checks or ())
            if rank > _WORST[health]:
                continue
            service = instance.service
            place = addresses.ip_and_port(_place(service.address or instance.node.address, service.port))
        except (msgspec.DecodeError, ValueError):
            continue
        weights = service.weights or _Weights()
        weight = weights.passing if rank == 0 else weights.warning
        host = instance.node.node
        found[f"{host}/{service.id}"] = labels.found(place, service.meta or {}, META, weight, host)
    return Reset(found)


def _place(address: str, port: int) -> str:
    return addresses.joined(addresses.ip(address), port)


def _rank(checks: Sequence[_Check]) -> int:
    """Return how bad the worst of ``checks`` is: 0 for passing, 2 for critical or what is not known."""
    return max((_RANK.get(check.status, 2) for check in checks), default=0)


def next_index(before: int, said: str | None) -> int:
    """Return the index to wait for a change of, 0 for none, after an answer whose header ``said`` so."""
    if said is None or not (said.isascii() and said.isdigit() and len(said) < 20):
        return 0
    index = int(said)
    return index if index >= max(before, 1) else 0


class Consul:
    """Follows the service of ``settings``."""

    def __init__(self, settings: ConsulSource, rng: Random) -> None:
        self._settings = settings
        self._rng = rng

    async def run(self, tell: Tell, asked: asyncio.Event) -> None:
        """Tell the instances, again at every answer."""

        async def follow(session: aiohttp.ClientSession, backoff: Backoff) -> None:
            await self._follow(session, tell, asked, backoff)

        await http.followed(self._settings.ca, self._rng, tell, follow)

    async def _follow(self, session: aiohttp.ClientSession, tell: Tell, asked: asyncio.Event, backoff: Backoff) -> None:
        index = 0
        while True:
            spaced = asyncio.get_running_loop().time() + jittered(SPACING_SECONDS, self._rng)
            if asked.is_set():
                asked.clear()
                index = 0
            answer = await _unless(asked, self._ask(session, index))
            if answer is not None:
                index, news = answer
                tell(news)
                backoff.succeeded()
            await asyncio.sleep(spaced - asyncio.get_running_loop().time())

    async def _ask(self, session: aiohttp.ClientSession, index: int) -> tuple[int, Reset]:
        settings = self._settings
        query = {"tag": settings.tag, "dc": settings.datacenter, "ns": settings.namespace}
        wait = 0.0
        if index:
            wait = jittered(settings.wait_seconds, self._rng)
            query |= {"index": str(index), "wait": f"{round(wait * 1000)}ms"}
        token = await asyncio.to_thread(http.secret, settings.token_file)
        # Consul adds up to a sixteenth of the wait of its own.
        async with (
            asyncio.timeout(wait * 17 / 16 + ANSWER_SECONDS),
            session.get(
                f"{settings.url}/v1/health/service/{quote(settings.service, safe='')}",
                params={key: value for key, value in query.items() if value is not None},
                headers={"X-Consul-Token": token} if token else {},
                allow_redirects=False,
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=http.CONNECT_SECONDS),
            ) as answer,
        ):
            text = await http.body(answer)
            news = await asyncio.to_thread(parse, text, settings.health)
            return next_index(index, answer.headers.get("X-Consul-Index")), news


async def _unless(asked: asyncio.Event, work: Coroutine[Any, Any, tuple[int, Reset]]) -> tuple[int, Reset] | None:
    """Return what ``work`` returns; ``None`` when a pass is asked for first, and it is given up."""
    working, asking = asyncio.create_task(work), asyncio.create_task(asked.wait())
    try:
        await asyncio.wait({working, asking}, return_when=asyncio.FIRST_COMPLETED)
        return working.result() if working.done() else None
    finally:
        # Both end before this does.
        for task in (working, asking):
            task.cancel()
        await asyncio.gather(working, asking, return_exceptions=True)
