"""A stand-in for Kubernetes' API that lists and watches as it does, and goes wrong as a test says.

Lists come in pages with a resource version, watches send what changed after the one that they name, and a version from
before the last compaction is 410 Gone, as an event of the watch.
"""

import asyncio
import contextlib
import itertools
import json
from collections.abc import AsyncIterator
from typing import Any

from aiohttp import web

from tests.ports import free_port

PODS = "/api/v1/namespaces/ml/pods"
SLICES = "/apis/discovery.k8s.io/v1/namespaces/ml/endpointslices"
POOLS = "/apis/inference.networking.k8s.io/v1/namespaces/ml/inferencepools"
OBJECTIVES = "/apis/inference.networking.x-k8s.io/v1alpha2/namespaces/ml/inferenceobjectives"
REWRITES = "/apis/inference.networking.x-k8s.io/v1alpha2/namespaces/ml/inferencemodelrewrites"

_uids = itertools.count(1)


def meta(name: str, labels: dict[str, str] | None = None, **more: Any) -> dict[str, Any]:
    return {"name": name, "namespace": "ml", "uid": f"uid-{next(_uids)}", "labels": labels or {}, **more}


def pod(name: str, ip: str, *, ready: bool = True, labels: dict[str, str] | None = None, **more: Any) -> dict[str, Any]:
    return {
        "metadata": meta(name, {"app": "vllm", **(labels or {})}, **more),
        "status": {
            "podIP": ip,
            "phase": "Running",
            "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
        },
    }


def endpoint_slice(name: str, service: str, *endpoints: dict[str, Any], **more: Any) -> dict[str, Any]:
    whole = {
        "metadata": meta(name, {"kubernetes.io/service-name": service}),
        "addressType": "IPv4",
        "endpoints": list(endpoints),
        "ports": [{"name": "http", "port": 8000, "protocol": "TCP"}],
    }
    return {**whole, **more}


def inference_pool(name: str, labels: dict[str, str], *ports: int) -> dict[str, Any]:
    spec = {"selector": {"matchLabels": labels}, "targetPorts": [{"number": port} for port in ports]}
    return {"metadata": meta(name), "spec": {**spec, "endpointPickerRef": {"name": "epp", "port": {"number": 9002}}}}


def of_pool(name: str, pool: str, **spec: Any) -> dict[str, Any]:
    """Return an objective or a rewrite of ``pool``."""
    ref = {"group": "inference.networking.k8s.io", "name": pool}
    return {"metadata": meta(name, creationTimestamp="2026-11-01T00:00:00Z"), "spec": {"poolRef": ref, **spec}}


class KubernetesApi:
    """Attributes.

    objects: what there is, by path and name.
    status: the HTTP status of all answers.
    silent: open watches hear nothing any more.
    forbidden: paths that are answered with 403.
    token: the token without which 401 is answered; empty for none.
    lists: lists so far.
    watches: the resource versions that watches began with.
    page: objects of a page, at the most.
    """

    def __init__(self) -> None:
        self.port = free_port()
        self.objects: dict[str, dict[str, dict[str, Any]]] = {PODS: {}, SLICES: {}, POOLS: {}}
        self.version = 1000
        self.compacted = 0
        self.status = 200
        self.silent = False
        self.forbidden: set[str] = set()
        self.token = ""
        self.lists = 0
        self.watches: list[int] = []
        self.page = 500
        self._history: list[tuple[int, str, dict[str, Any]]] = []
        self._changed = asyncio.Event()
        self._connection = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    # -- what a test does

    def put(self, path: str, *objects: dict[str, Any]) -> None:
        """Add or change ``objects``, and tell the watches."""
        for one in objects:
            known = one["metadata"]["name"] in self.objects[path]
            self._note("MODIFIED" if known else "ADDED", path, one)
            self.objects[path][one["metadata"]["name"]] = one

    def delete(self, path: str, name: str, *, told: bool = True) -> dict[str, Any]:
        """Delete an object; without ``told`` no watch ever hears of it."""
        gone = self.objects[path].pop(name)
        self.version += 1
        if told:
            self._note("DELETED", path, gone)
        return gone

    def replay(self, kind: str, path: str, one: dict[str, Any]) -> None:
        """Tell the watches an event again, as it was long ago."""
        self._history.append((self.version, path, {"type": kind, "object": one}))
        self._wake()

    def drop(self) -> None:
        """Break off every watch."""
        self._connection += 1
        self._wake()

    def compact(self) -> None:
        """Forget all history up to now: watches that begin before it are gone."""
        self.version += 1
        self.compacted = self.version

    def _note(self, kind: str, path: str, one: dict[str, Any]) -> None:
        self.version += 1
        one["metadata"] = {**one["metadata"], "resourceVersion": str(self.version)}
        self._history.append((self.version, path, {"type": kind, "object": json.loads(json.dumps(one))}))
        self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    # -- what it answers

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        path, query = request.path, request.query
        if self.token and request.headers.get("Authorization") != f"Bearer {self.token}":
            return web.Response(status=401)
        if self.status != 200:
            return web.Response(status=self.status)
        if path in self.forbidden:
            return web.Response(status=403)
        collection, _, name = path.rpartition("/")
        if collection in self.objects:
            one = self.objects[collection].get(name)
            return web.json_response(one) if one else web.Response(status=404)
        if path not in self.objects:
            return web.Response(status=404)
        if query.get("watch") == "true":
            return await self._watch(request, path)
        return self._list(path, query.get("labelSelector", ""), int(query["limit"]), query.get("continue", ""))

    def _list(self, path: str, selector: str, limit: int, after: str) -> web.Response:
        self.lists += not after and path not in {OBJECTIVES, REWRITES}
        items = [one for one in self.objects[path].values() if _matches(one, selector)]
        begin = int(after or 0)
        end = begin + min(limit, self.page)
        more = str(end) if end < len(items) else ""
        return web.json_response(
            {
                "kind": "List",
                "metadata": {"resourceVersion": str(self.version), "continue": more},
                "items": items[begin:end],
            }
        )

    async def _watch(self, request: web.Request, path: str) -> web.StreamResponse:
        version, selector = int(request.query["resourceVersion"]), request.query.get("labelSelector", "")
        self.watches.append(version)
        answer = web.StreamResponse()
        await answer.prepare(request)
        if version < self.compacted:
            gone = {"kind": "Status", "code": 410, "reason": "Expired"}
            await answer.write(json.dumps({"type": "ERROR", "object": gone}).encode() + b"\n")
            return answer
        bookmark = {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": str(version)}}}
        await answer.write(json.dumps(bookmark).encode() + b"\n")
        sent = next((at for at, (noted, _, _) in enumerate(self._history) if noted > version), len(self._history))
        connection = self._connection
        while connection == self._connection:
            changed = self._changed
            while sent < len(self._history) and not self.silent:
                _, where, event = self._history[sent]
                sent += 1
                if where == path and _matches(event["object"], selector):
                    await answer.write(json.dumps(event).encode() + b"\n")
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(changed.wait(), 1)
        return answer

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        app = web.Application()
        app.router.add_get("/{rest:.*}", self._answer)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", self.port).start()
        try:
            yield
        finally:
            self.drop()
            await runner.cleanup()


def _matches(one: dict[str, Any], selector: str) -> bool:
    labels = one["metadata"].get("labels", {})
    return all(
        labels.get(key) == value for key, _, value in (part.partition("=") for part in selector.split(",") if part)
    )
