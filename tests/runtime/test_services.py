"""What the gRPC ports of the control plane take."""

import grpc

from tests.ports import free_port
from tests.xds.test_server import ask, call, receive, until
from tests.xds.wire import fleet
from tidegate.runtime import services
from xds.server import DiscoveryServer
from xds.type_urls import ENDPOINT


async def test_a_message_that_no_envoy_would_send_is_refused_before_it_is_held() -> None:
    port, server = free_port(), DiscoveryServer(lambda _: None)
    server.publish(fleet({"a": "1"}))
    async with (
        services.grpc_server("127.0.0.1", port, server.handlers(), 0.1),
        grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel,
    ):
        good, bad = call(channel), call(channel)
        await ask(good, ENDPOINT, ("a",))
        await receive(good)
        await bad.write(bytes(services.MAX_TOLD_BYTES * 2))
        assert await bad.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        await until(lambda: server.streams == 1)
        good.cancel()
        server.close()
