"""The least that an ext_proc service can do: two exchanges over grpc.aio, answered at once with one fixed endpoint.

Nothing is read, parsed, counted or logged, and the replies are made once. What Tidegate is compared with.
"""

import argparse
import asyncio
import signal
from typing import Any

import grpc
import grpc.aio
import uvloop

from extproc.grpc_transport import server_options
from protos import ext_proc_pb2

SERVICE, METHOD = "envoy.service.ext_proc.v3.ExternalProcessor", "Process"
MAX_BODY_BYTES = 33_554_432


def replies(destination: str) -> tuple[bytes, bytes]:
    """Return the reply to the headers, and the one to the body that names ``destination`` (``ip:port``)."""
    go_on = ext_proc_pb2.ProcessingResponse()
    go_on.request_headers.SetInParent()
    decision = ext_proc_pb2.ProcessingResponse()
    decision.request_body.SetInParent()
    decision.dynamic_metadata.update({"envoy.lb": {"x-gateway-destination-endpoint": destination}})
    return go_on.SerializeToString(), decision.SerializeToString()


def handler(destination: str) -> grpc.GenericRpcHandler:
    """Return the service."""
    answers = replies(destination)

    async def process(_: Any, context: grpc.aio.ServicerContext[bytes, bytes]) -> None:
        for answer in answers:
            message: object = await context.read()
            if not isinstance(message, bytes):  # grpc.aio.EOF
                return
            await context.write(answer)

    method: grpc.RpcMethodHandler[bytes, bytes] = grpc.stream_stream_rpc_method_handler(process)
    return grpc.method_handlers_generic_handler(SERVICE, {METHOD: method})


async def serve(port: int, destination: str) -> None:
    """Serve until SIGTERM."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    server = grpc.aio.server(options=server_options(MAX_BODY_BYTES))
    server.add_generic_rpc_handlers((handler(destination),))
    server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    await stop.wait()
    await server.stop(0)


def main(argv: list[str] | None = None) -> None:
    """Run the service."""
    parser = argparse.ArgumentParser(prog="python -m bench.bare_ext_proc")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--destination", required=True, help="ip:port of the endpoint")
    options = parser.parse_args(argv)
    uvloop.run(serve(options.port, options.destination))


if __name__ == "__main__":
    main()
