"""Directories of every kind, which are told who exists in the same words."""

import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Protocol

from tests.discovery.consul_api import ConsulApi, instance
from tests.discovery.dns_server import DnsServer
from tests.discovery.kubernetes_api import PODS, POOLS, SLICES, KubernetesApi, endpoint_slice, inference_pool, pod
from tidegate import addresses

PORT = 8000


class Directory(Protocol):
    """A directory, and how a pool's ``discovery`` names it."""

    settings: dict[str, Any]

    def say(self, *hosts: str) -> None:
        """Have it say that these exist, all at ``PORT``."""

    def fail(self, *, fails: bool) -> None:
        """Have it fail, or be well again."""

    def running(self) -> contextlib.AbstractAsyncContextManager[None]:
        """Run it as long as the block."""


class OfFile:
    def __init__(self, folder: Path) -> None:
        self._file = folder / "endpoints.yaml"
        self._text, self._fails = "[]", False
        self.settings: dict[str, Any] = {"file": {"path": str(self._file)}}
        self._write()

    def say(self, *hosts: str) -> None:
        self._text = json.dumps([{"address": addresses.joined(host, PORT)} for host in hosts])
        self._write()

    def fail(self, *, fails: bool) -> None:
        self._fails = fails
        self._write()

    def _write(self) -> None:
        new = self._file.with_suffix(".new")
        new.write_text("- {address: " if self._fails else self._text)
        new.replace(self._file)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        yield


class OfDns:
    def __init__(self, _: Path) -> None:
        self._server = DnsServer()
        self.settings: dict[str, Any] = {
            "dns": {
                "name": "llm.test",
                "records": "both",
                "port": PORT,
                "servers": [self._server.place],
                "min_seconds": 0.1,
                "timeout_seconds": 1.0,
            }
        }

    def say(self, *hosts: str) -> None:
        self._server.records = {
            ("llm.test", "A"): (0, [host for host in hosts if ":" not in host]),
            ("llm.test", "AAAA"): (0, [host for host in hosts if ":" in host]),
        }
        self._server.records = {key: said for key, said in self._server.records.items() if said[1]}

    def fail(self, *, fails: bool) -> None:
        self._server.rcodes = {("llm.test", kind): "SERVFAIL" for kind in ("A", "AAAA")} if fails else {}

    def running(self) -> contextlib.AbstractAsyncContextManager[None]:
        return self._server.running()


class OfConsul:
    def __init__(self, _: Path) -> None:
        self._api = ConsulApi()
        self._index = 1
        self.settings: dict[str, Any] = {"consul": {"url": self._api.url, "service": "llm"}}

    def say(self, *hosts: str) -> None:
        self._index += 1
        self._api.set(self._index, *(instance(at, address=host) for at, host in enumerate(hosts)))

    def fail(self, *, fails: bool) -> None:
        self._api.status, self._api.blocks = (500, False) if fails else (200, True)
        self._api.wake()

    def running(self) -> contextlib.AbstractAsyncContextManager[None]:
        return self._api.running()


class _OfKubernetes:
    def __init__(self, path: str, **what: Any) -> None:
        self.api = KubernetesApi()
        self._path = path
        self.settings: dict[str, Any] = {
            "kubernetes": {"url": self.api.url, "namespace": "ml", "token_file": None, "ca": None, **what}
        }

    def _object(self, host: str) -> dict[str, Any]:
        return pod(_name(host), host)

    def say(self, *hosts: str) -> None:
        names = {_name(host) for host in hosts}
        for gone in [name for name in self.api.objects[self._path] if name not in names]:
            self.api.delete(self._path, gone)
        self.api.put(
            self._path, *(self._object(host) for host in hosts if _name(host) not in self.api.objects[self._path])
        )

    def fail(self, *, fails: bool) -> None:
        self.api.status = 500 if fails else 200
        self.api.drop()

    def running(self) -> contextlib.AbstractAsyncContextManager[None]:
        return self.api.running()


class OfPods(_OfKubernetes):
    def __init__(self, _: Path) -> None:
        super().__init__(PODS, selector="app=vllm", port=PORT)


class OfInferencePool(_OfKubernetes):
    def __init__(self, _: Path) -> None:
        super().__init__(PODS, inference_pool="llama")
        self.api.put(POOLS, inference_pool("llama", {"app": "vllm"}, PORT))


class OfSlices(_OfKubernetes):
    def __init__(self, _: Path) -> None:
        super().__init__(SLICES, service="vllm")

    def _object(self, host: str) -> dict[str, Any]:
        family = "IPv6" if ":" in host else "IPv4"
        return endpoint_slice(_name(host), "vllm", {"addresses": [host]}, addressType=family)


def _name(host: str) -> str:
    return f"of-{host.replace(':', '-').replace('.', '-')}"


ALL = (OfFile, OfDns, OfConsul, OfPods, OfSlices, OfInferencePool)
