"""The source ``kubernetes``: pods by their labels, the slices of a service, or the pods of an InferencePool.

Everything is listed, then watched from there on; and listed again whenever the watch ends, for whatever reason, and
every few minutes in any case: a watch that died in silence, or lost a deletion, misleads no longer than that.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from random import Random
from urllib.parse import quote

import aiohttp
import msgspec

from tidegate.config_discovery import KubernetesSource
from tidegate.discovery import http, nested, steering
from tidegate.discovery.contract import Backoff, Steered, Tell, jittered, waited
from tidegate.discovery.kubernetes_objects import Read, Shape, Stale, Table, inference_pool, pods, slices

PAGE = 500
"""Objects of one answer to a list."""

MAX_PAGES = 100
MAX_LINE = 4_194_304
"""Largest event of a watch in bytes; an object in etcd has 1.5 MiB at most."""

ANSWER_SECONDS = 15.0
"""Deadline of one answer that is not a watch."""

SPACING_SECONDS = 1.25
"""Between the beginnings of two lists, before jitter."""

SHAPE_SECONDS = 10.0
"""How often an InferencePool is looked at for another selector."""


class _ListMeta(msgspec.Struct, rename="camel"):
    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class _List(msgspec.Struct):
    metadata: _ListMeta
    items: list[msgspec.Raw] | None = None


class Kubernetes:
    """Follows what ``settings`` name."""

    def __init__(self, settings: KubernetesSource, rng: Random) -> None:
        self._settings = settings
        self._rng = rng
        self._namespace = quote(settings.namespace, safe="")

    async def run(self, tell: Tell, asked: asyncio.Event) -> None:
        """Tell the endpoints."""

        async def follow(session: aiohttp.ClientSession, backoff: Backoff) -> None:
            await self._follow(session, tell, asked, backoff)

        await http.followed(self._settings.ca, self._rng, tell, follow)

    async def _follow(self, session: aiohttp.ClientSession, tell: Tell, asked: asyncio.Event, backoff: Backoff) -> None:
        clock = asyncio.get_running_loop().time
        while True:
            spaced = clock() + jittered(SPACING_SECONDS, self._rng)
            asked.clear()
            shape = await self._shape(session)
            await self._steer(session, tell)
            path, selector, read = self._collection(shape)
            table = Table(read)
            items, version = await self._list(session, path, selector)
            tell(await asyncio.to_thread(table.listed, items, version))
            backoff.succeeded()
            watching = asyncio.create_task(self._watch(session, path, selector, version, table, tell))
            asking = asyncio.create_task(self._in_doubt(session, shape, asked, tell))
            try:
                await asyncio.wait({watching, asking}, return_when=asyncio.FIRST_COMPLETED)
                for task in (watching, asking):
                    if task.done():
                        task.result()
            finally:
                for task in (watching, asking):
                    task.cancel()
                await asyncio.gather(watching, asking, return_exceptions=True)
            await asyncio.sleep(spaced - clock())

    async def _in_doubt(
        self, session: aiohttp.ClientSession, shape: Shape | None, asked: asyncio.Event, tell: Tell
    ) -> None:
        """Return when a new list is asked for, or what is to be listed is another than ``shape``."""
        while True:
            if await waited(asked, jittered(SHAPE_SECONDS, self._rng)):
                return
            if shape is not None and await self._shape(session) != shape:
                return
            await self._steer(session, tell)

    def _collection(self, shape: Shape | None) -> tuple[str, str, Read]:
        """Return the path of what is followed, the labels that choose from it, and what reads it."""
        settings, core = self._settings, f"/api/v1/namespaces/{self._namespace}/pods"
        if shape is not None:
            return core, shape.selector, pods(settings.namespace, shape.ports)
        if settings.service is not None:
            path = f"/apis/discovery.k8s.io/v1/namespaces/{self._namespace}/endpointslices"
            return path, f"kubernetes.io/service-name={settings.service}", slices(settings.namespace, settings.port)
        return core, settings.selector or "", pods(settings.namespace, [settings.port or 0])

    async def _shape(self, session: aiohttp.ClientSession) -> Shape | None:
        if self._settings.inference_pool is None:
            return None
        name = quote(self._settings.inference_pool, safe="")
        path = f"/apis/inference.networking.k8s.io/v1/namespaces/{self._namespace}/inferencepools/{name}"
        return inference_pool(await self._get(session, path, {}), self._settings.namespace)

    async def _steer(self, session: aiohttp.ClientSession, tell: Tell) -> None:
        """Tell what is said of requests to an InferencePool. That endpoints are found does not hang on it."""
        pool, namespace = self._settings.inference_pool, self._settings.namespace
        if pool is None:
            return
        said: dict[str, list[bytes]] = {steering.OBJECTIVES: [], steering.REWRITES: []}
        try:
            for group in steering.GROUPS:
                for kind, objects in said.items():
                    path = f"/apis/{group}/v1alpha2/namespaces/{self._namespace}/{kind}"
                    objects.extend(await self._list_if_there(session, path))
        except (aiohttp.ClientError, http.Refused, OSError, ValueError) as error:
            tell(Steered(None, http.reason(error)))
            return
        tell(Steered(steering.steering(namespace, pool, *said.values())))

    async def _list_if_there(self, session: aiohttp.ClientSession, path: str) -> list[bytes]:
        """Return all objects of a kind; none where the API does not know the kind."""
        try:
            return (await self._list(session, path, ""))[0]
        except http.Refused as error:
            if error.status == 404:
                return []
            raise

    async def _list(self, session: aiohttp.ClientSession, path: str, selector: str) -> tuple[list[bytes], str]:
        """Return all objects, page by page, and their version. Without a version of ours: from the quorum."""
        items: list[bytes] = []
        more = ""
        for _ in range(MAX_PAGES):
            query = {"labelSelector": selector, "limit": str(PAGE), "continue": more}
            # In a thread: where an object is nested too deeply, all of them are looked through.
            page = await asyncio.to_thread(nested.decode, await self._get(session, path, query), _List)
            items += [bytes(item) for item in page.items or ()]
            more = page.metadata.continue_
            if not more:
                return items, page.metadata.resource_version
        raise http.Refused("too many pages", 200)

    async def _watch(
        self, session: aiohttp.ClientSession, path: str, selector: str, version: str, table: Table, tell: Tell
    ) -> None:
        """Tell what changes after ``version``, until the watch ends or is too old."""
        seconds = jittered(self._settings.relist_seconds, self._rng)
        query = {
            "watch": "true",
            "labelSelector": selector,
            "resourceVersion": version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(max(1, round(seconds))),
        }
        try:
            async with asyncio.timeout(seconds), self._request(session, path, query, await self._headers()) as answer:
                if answer.status == 410:
                    return
                if answer.status != 200:
                    raise http.Refused(f"HTTP {answer.status}", answer.status)
                async for line in _lines(answer):
                    for news in table.told(line):
                        tell(news)
        except (TimeoutError, Stale, aiohttp.ClientPayloadError, aiohttp.ServerDisconnectedError):
            return

    async def _get(self, session: aiohttp.ClientSession, path: str, query: Mapping[str, str]) -> bytes:
        async with (
            asyncio.timeout(ANSWER_SECONDS),
            self._request(session, path, query, await self._headers()) as answer,
        ):
            return await http.body(answer)

    async def _headers(self) -> dict[str, str]:
        token = await asyncio.to_thread(http.secret, self._settings.token_file)
        return {"Accept": "application/json", **({"Authorization": f"Bearer {token}"} if token else {})}

    def _request(
        self, session: aiohttp.ClientSession, path: str, query: Mapping[str, str], headers: Mapping[str, str]
    ) -> "aiohttp.client._RequestContextManager":
        return session.get(
            f"{self._settings.url}{path}",
            params={key: value for key, value in query.items() if value},
            headers=headers,
            allow_redirects=False,
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=http.CONNECT_SECONDS),
        )


async def _lines(answer: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    """Yield the lines of ``answer`` as they come.

    Raises:
        Refused: one is too long.
    """
    rest = bytearray()
    async for part in answer.content.iter_any():
        *whole, last = part.split(b"\n")
        for line in whole:
            yield bytes(rest + line)
            rest.clear()
        rest += last
        if len(rest) > MAX_LINE:
            raise http.Refused(f"an event of more than {MAX_LINE} bytes", answer.status)
