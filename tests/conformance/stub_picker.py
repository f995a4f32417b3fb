"""A small endpoint picker, right or wrong in one way: what the conformance kit is tested with.

Run as a program: ``python stub_picker.py PORT POD,POD,POD FAULT``.
"""

import asyncio
import contextlib
import json
import re
import sys
from typing import Any

import aiohttp
import grpc
import grpc.aio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from protos import core_pb2, ext_proc_pb2

FAULTS = (
    "none",
    "answers the headers at once",
    "ignores the subset",
    "ignores ports",
    "has header and metadata differ",
    "loses a piece of the body",
    "ends with OK instead of refusing",
)
DESTINATION = "x-gateway-destination-endpoint"
PIECE = 60_000


class Picker:
    """Picks the pod with the shortest queue."""

    def __init__(self, pods: list[str], fault: str) -> None:
        self.fault = fault
        self.queues = dict.fromkeys(pods, 0)

    async def scrape(self) -> None:
        async with aiohttp.ClientSession() as session:
            while True:
                for pod in self.queues:
                    with contextlib.suppress(aiohttp.ClientError):
                        async with session.get(f"http://{pod}/metrics") as page:
                            found = re.search(r"num_requests_waiting\{.*\} (\d+)", await page.text())
                            self.queues[pod] = int(found[1]) if found else 0
                await asyncio.sleep(0.02)

    async def process(self, _: Any, context: Any) -> None:
        held, body = None, []
        while isinstance(raw := await context.read(), bytes):
            message = ext_proc_pb2.ProcessingRequest.FromString(raw)
            kind = message.WhichOneof("request")
            if kind == "request_headers":
                held = message
                if self.fault == "answers the headers at once" or message.request_headers.end_of_stream:
                    await self.decide(context, held)
            elif kind == "request_body":
                body.append(message.request_body.body)
                if message.request_body.end_of_stream and held is not None:
                    await self.finish(context, held, body)
            elif kind == "request_trailers" and held is not None:
                await self.finish(context, held, body, trailers=True)
            elif kind is not None:
                await self.respond(context, kind, message)

    async def finish(self, context: Any, held: Any, body: list[bytes], *, trailers: bool = False) -> None:
        try:
            model = json.loads(b"".join(body))["model"]
            assert isinstance(model, str)
        except (ValueError, KeyError, TypeError, AssertionError):
            await self.refuse(context, 400, "bad-request")
            return
        if self.fault != "answers the headers at once" and not await self.decide(context, held):
            return
        if self.fault == "loses a piece of the body" and len(body) > 2:
            del body[1]
        await self.echo(context, "request_body", b"".join(body), end=not trailers)
        if trailers:
            reply = ext_proc_pb2.ProcessingResponse(request_trailers=ext_proc_pb2.TrailersResponse())
            await context.write(reply.SerializeToString())

    async def decide(self, context: Any, message: ext_proc_pb2.ProcessingRequest) -> bool:
        pods = sorted((pod for pod in self.queues if self.allowed(pod, message)), key=lambda pod: self.queues[pod])
        if not pods:
            await self.refuse(context, 503, "rejected-no-endpoints")
            return False
        reply = ext_proc_pb2.ProcessingResponse()
        response = reply.request_headers.response
        response.clear_route_cache = True
        headers = [header.key.lower() for header in message.request_headers.headers.headers]
        response.header_mutation.remove_headers.extend(key for key in headers if key.endswith("inference-objective"))
        self.set(response.header_mutation, DESTINATION, pods[0])
        told = "10.0.0.1:1" if self.fault == "has header and metadata differ" else pods[0]
        reply.dynamic_metadata.update({"envoy.lb": {DESTINATION: told}})
        await context.write(reply.SerializeToString())
        return True

    def set(self, mutation: ext_proc_pb2.HeaderMutation, key: str, value: str) -> None:
        option = mutation.set_headers.add()
        option.header.key, option.header.raw_value = key, value.encode()
        option.append_action = core_pb2.HeaderValueOption.OVERWRITE_IF_EXISTS_OR_ADD

    def allowed(self, pod: str, message: ext_proc_pb2.ProcessingRequest) -> bool:
        metadata = message.metadata_context.filter_metadata
        if "envoy.lb.subset_hint" not in metadata or self.fault == "ignores the subset":
            return True
        hint = metadata["envoy.lb.subset_hint"].fields[f"{DESTINATION}-subset"]
        names = [value.string_value for value in hint.list_value.values] or hint.string_value.split(",")
        if self.fault == "ignores ports":
            return pod.rpartition(":")[0] in {name.rpartition(":")[0] for name in names}
        return pod in names

    async def refuse(self, context: Any, status: int, reason: str) -> None:
        if self.fault == "ends with OK instead of refusing":
            await context.abort(grpc.StatusCode.OK, "")
        reply = ext_proc_pb2.ProcessingResponse()
        reply.immediate_response.status.code = status  # type: ignore[assignment]
        self.set(reply.immediate_response.headers, "x-llm-d-request-dropped-reason", reason)
        await context.write(reply.SerializeToString())

    async def respond(self, context: Any, kind: str, message: ext_proc_pb2.ProcessingRequest) -> None:
        reply = ext_proc_pb2.ProcessingResponse()
        if kind == "response_body":
            await self.echo(context, kind, message.response_body.body, end=message.response_body.end_of_stream)
            return
        getattr(reply, kind).SetInParent()
        if kind == "response_headers":
            sent = [header.key.lower() for header in message.response_headers.headers.headers]
            removed = [key for key in sent if key == DESTINATION or key.endswith("inference-objective")]
            reply.response_headers.response.header_mutation.remove_headers.extend(removed)
        await context.write(reply.SerializeToString())

    async def echo(self, context: Any, kind: str, body: bytes, *, end: bool) -> None:
        for start in range(0, max(len(body), 1), PIECE):
            reply = ext_proc_pb2.ProcessingResponse()
            streamed = getattr(reply, kind).response.body_mutation.streamed_response
            streamed.body = body[start : start + PIECE]
            streamed.end_of_stream = end and start + PIECE >= len(body)
            await context.write(reply.SerializeToString())


async def main(port: str, pods: str, fault: str) -> None:
    picker = Picker(pods.split(","), fault)
    server = grpc.aio.server(options=[("grpc.max_receive_message_length", 64 << 20)])
    method: Any = grpc.stream_stream_rpc_method_handler(picker.process)
    name = "envoy.service.ext_proc.v3.ExternalProcessor"
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(name, {"Process": method}),))
    healthy = health.aio.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(healthy, server)
    for service in ("", "liveness", "readiness", name):
        await healthy.set(service, health_pb2.HealthCheckResponse.SERVING)
    server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    await picker.scrape()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
