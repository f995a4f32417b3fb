"""Many clients of a discovery service in one process: they subscribe as Envoy does, and acknowledge all they are sent.

``python -m bench.xds_clients PORT CLIENTS delta|sotw``. For each line that it reads it writes one: the bytes of all
responses so far.
"""

import asyncio
import sys
from collections.abc import Iterable
from typing import Any

import grpc

from protos.discovery_pb2 import DeltaDiscoveryRequest, DeltaDiscoveryResponse, DiscoveryRequest, DiscoveryResponse
from xds.names import ROUTES
from xds.services import AGGREGATED
from xds.type_urls import CLUSTER, ENDPOINT, LISTENER, ROUTE

MAX_BYTES = 64 << 20


class Client:
    """One Envoy's worth of subscriptions."""

    def __init__(self, name: str, *, incremental: bool) -> None:
        """Be the node ``name``."""
        self._name = name
        self._incremental = incremental
        self._asked: dict[str, tuple[str, ...]] = {}
        self.bytes = 0

    async def run(self, port: int) -> None:
        """Take what comes, until the service ends."""
        method = AGGREGATED.delta if self._incremental else AGGREGATED.state_of_the_world
        options = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_receive_message_length", MAX_BYTES)]
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=options) as channel:
            stream: Any = channel.stream_stream(f"/{AGGREGATED.name}/{method}")()
            for type_url in (CLUSTER, LISTENER):
                await stream.write(self._request(type_url))
            while isinstance(message := await stream.read(), bytes):
                self.bytes += len(message)
                for request in self._answers(message):
                    await stream.write(request)

    def _answers(self, message: bytes) -> Iterable[bytes]:
        """Yield the acknowledgement of a response, and the questions that follow from it."""
        if self._incremental:
            delta = DeltaDiscoveryResponse.FromString(message)
            yield DeltaDiscoveryRequest(type_url=delta.type_url, response_nonce=delta.nonce).SerializeToString()
            type_url, names = delta.type_url, [resource.name for resource in delta.resources]
        else:
            response = DiscoveryResponse.FromString(message)
            asked = self._asked.get(response.type_url, ())
            yield DiscoveryRequest(
                type_url=response.type_url,
                response_nonce=response.nonce,
                version_info=response.version_info,
                resource_names=asked,
            ).SerializeToString()
            # Clusters and listeners have their name in field 1.
            type_url, names = response.type_url, [_name(resource.value) for resource in response.resources]
        follows = {CLUSTER: ENDPOINT, LISTENER: ROUTE}.get(type_url)
        if follows is not None and follows not in self._asked:
            self._asked[follows] = tuple(_followed(type_url, names))
            yield self._request(follows, self._asked[follows])

    def _request(self, type_url: str, names: Iterable[str] = ()) -> bytes:
        if self._incremental:
            delta = DeltaDiscoveryRequest(type_url=type_url, resource_names_subscribe=names)
            delta.node.id = self._name
            return delta.SerializeToString()
        request = DiscoveryRequest(type_url=type_url, resource_names=names)
        request.node.id = self._name
        return request.SerializeToString()


def _name(resource: bytes) -> str:
    """Return field 1 of a message, a string shorter than 128 bytes."""
    return resource[2 : 2 + resource[1]].decode()


def _followed(type_url: str, names: Iterable[str]) -> Iterable[str]:
    """Return the names that a client asks for once it has resources of these names."""
    return (name for name in names if name.startswith("pool-")) if type_url == CLUSTER else (ROUTES,)


async def main(port: int, number: int, *, incremental: bool) -> None:
    """Run the clients until the input ends."""
    clients = [Client(f"envoy-{at}", incremental=incremental) for at in range(number)]
    loop = asyncio.get_running_loop()
    lines: asyncio.Queue[str] = asyncio.Queue()
    loop.add_reader(sys.stdin, lambda: lines.put_nowait(sys.stdin.readline()))
    async with asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(client.run(port)) for client in clients]
        while await lines.get():
            print(sum(client.bytes for client in clients), flush=True)
        for task in running:
            task.cancel()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), int(sys.argv[2]), incremental=sys.argv[3] == "delta"))
