"""Five hundred Envoys come back at once, as they do when a control plane is started again."""

import asyncio
from dataclasses import dataclass, field

from protos.discovery_pb2 import DeltaDiscoveryRequest, DeltaDiscoveryResponse
from tests.xds.wire import fleet
from xds.groups import for_all
from xds.response import Encoder
from xds.stream import Stream
from xds.turnstile import AT_ONCE, Turnstile
from xds.type_urls import CLUSTER, ENDPOINT, LISTENER, ROUTE

ENVOYS = 500
POOLS = [f"p{number}" for number in range(20)]
WANTED = {CLUSTER: (), ENDPOINT: tuple(POOLS), LISTENER: (), ROUTE: ("r",)}


@dataclass
class Crowd:
    """All of them: who is being sent something, and who has everything."""

    served: set[int] = field(default_factory=set)
    whole: set[int] = field(default_factory=set)
    most: int = 0


@dataclass
class Envoy:
    """One client at the other end of a stream without a transport."""

    number: int
    crowd: Crowd
    missing: set[str] = field(default_factory=lambda: set(WANTED))
    requests: asyncio.Queue[bytes | None] = field(default_factory=asyncio.Queue)

    def ask(self) -> None:
        for type_url, names in WANTED.items():
            request = DeltaDiscoveryRequest(type_url=type_url, resource_names_subscribe=names)
            request.node.id = f"envoy-{self.number}"
            self.requests.put_nowait(request.SerializeToString())

    async def take(self, message: bytes) -> None:
        self.crowd.served.add(self.number)
        self.crowd.most = max(self.crowd.most, len(self.crowd.served))
        await asyncio.sleep(0)
        response = DeltaDiscoveryResponse.FromString(message)
        self.missing.discard(response.type_url)
        answer = DeltaDiscoveryRequest(type_url=response.type_url, response_nonce=response.nonce)
        self.requests.put_nowait(answer.SerializeToString())
        if not self.missing:
            self.crowd.served.discard(self.number)
            self.crowd.whole.add(self.number)


async def test_five_hundred_envoys_are_served_a_few_at_a_time_from_one_snapshot_that_is_encoded_once() -> None:
    crowd, encoder, turnstile = Crowd(), Encoder(), Turnstile()
    groups = for_all(fleet(dict.fromkeys(POOLS, "1")))
    envoys = [Envoy(number, crowd) for number in range(ENVOYS)]
    streams = [Stream(one.number, True, groups, lambda _: None, encoder, turnstile) for one in envoys]
    async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
        for envoy, stream in zip(envoys, streams, strict=True):
            envoy.ask()
            tasks.create_task(stream.serve(envoy.requests.get, envoy.take))
        while len(crowd.whole) < ENVOYS or not all(stream.up_to_date for stream in streams):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        for envoy in envoys:
            envoy.requests.put_nowait(None)
    assert crowd.most <= AT_ONCE
    assert len(encoder._encoded) == len(WANTED)
