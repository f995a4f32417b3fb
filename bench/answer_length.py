"""What a streamed answer costs by its length, with each source of usage: CPU time of Tidegate and of Envoy per request.

    python -m bench.answer_length [--seconds 5] [--rounds 3] [--tokens 20 2000] [--transport grpc]

In front of one engine, which sends an event for each token as fast as it is taken, stands Envoy with Tidegate, once
with ``usage: access_log`` and once with ``usage: stream``. All lengths are measured in turn in each round, each with
the same number of requests a second, and what the processes take when nothing is asked is taken off: or the longer
answers would bear more of it.
"""

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median

import uvloop

from bench import envoy, load, sides
from bench.processes import cpu_seconds, free_ports, started
from bench.sides import CHAT, ROOT, START_SECONDS, Side

SOURCES = ("access_log", "stream")
PAUSE = 0.05
"""Seconds from one request to the next. They are sent one by one: in a burst, short answers end together, and what
follows on them is shared by several."""
IDLE_SECONDS = 3.0
EVENTS_AT_ONCE = 8
"""Events that the engine writes before it lets others run."""

_EVENT = b'data: {"object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":" word"}}]}\n\n'
_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def events(tokens: int) -> list[bytes]:
    """Return an answer of ``tokens`` tokens as HTTP/1.1 chunks, its usage at the end."""
    usage = {"prompt_tokens": 9, "completion_tokens": tokens, "total_tokens": tokens + 9}
    last = f"data: {json.dumps({'choices': [], 'usage': usage})}\n\ndata: [DONE]\n\n".encode()
    return [_HEAD, *[_chunk(_EVENT)] * tokens, _chunk(last) + b"0\r\n\r\n"]


async def engine(port: int, pause: float) -> None:
    """Answer every request with as many tokens as its ``max_tokens``, for ever.

    With a ``pause`` in seconds after each event, they come one by one; without, Envoy may read several together.
    """

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = next(
                    int(line.split(b":")[1])
                    for line in head.lower().split(b"\r\n")
                    if line.startswith(b"content-length")
                )
                tokens = json.loads(await reader.readexactly(length))["max_tokens"]
                for number, piece in enumerate(events(tokens)):
                    writer.write(piece)
                    if pause or number % EVENTS_AT_ONCE == 0:
                        await writer.drain()
                        await asyncio.sleep(pause)
        except (asyncio.IncompleteReadError, ConnectionError, StopIteration):
            writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", port)
    async with server:
        await server.serve_forever()


def request(tokens: int) -> bytes:
    """Return a request for a stream of ``tokens`` tokens, whose usage is asked for."""
    body = {
        "model": "bench",
        "messages": [{"role": "user", "content": "hello " * 200}],
        "max_tokens": tokens,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    return load.post(CHAT, "bench", json.dumps(body).encode())


@contextmanager
def tidegate(folder: Path, source: str, engine_port: int, transport: str) -> Iterator[Side]:
    """Run the control plane and Envoy with ``source`` of usage."""
    folder = folder / source
    folder.mkdir()
    ports = free_ports(5)
    settings = json.loads(sides.tidegate_settings(ports, [engine_port], 1, "least_tokens"))
    settings["control"]["ext_proc_transport"] = transport
    settings["pools"][0]["usage"] = source
    config = folder / "tidegate.yaml"
    config.write_text(json.dumps(settings))
    command = [sys.executable, "-m", "tidegate"]
    with ExitStack() as stack:
        serve = [*command, "serve", "--config", str(config)]
        control = stack.enter_context(started("tidegate serve", serve, folder / "tidegate.log", cwd=ROOT))
        control.wait_for(ports[1], "/readyz", START_SECONDS)
        bootstrap = folder / "bootstrap.yaml"
        bootstrap.write_text(sides.output([*command, "bootstrap", "--config", str(config)]))
        proxy = stack.enter_context(started("Envoy", envoy.command(bootstrap, 1), folder / "envoy.log"))
        proxy.wait_for(ports[0], CHAT, START_SECONDS, body=request(1).partition(b"\r\n\r\n")[2])
        yield Side(source, ports[0], {"envoy": proxy.process.pid, "tidegate": control.process.pid})


def idle(side: Side) -> dict[str, float]:
    """Return the share of a core that each process takes when nothing is asked."""
    before = cpu_seconds(side.pids)
    time.sleep(IDLE_SECONDS)
    after = cpu_seconds(side.pids)
    return {name: (after[name] - before[name]) / IDLE_SECONDS for name in after}


def measure(side: Side, tokens: int, seconds: float, at_rest: dict[str, float]) -> dict[str, float]:
    """Return the CPU time per answered request in microseconds, by process, without what they take ``at_rest``.

    Raises:
        RuntimeError: a request was not answered.
    """
    before = cpu_seconds(side.pids)
    answered = 0
    began = time.perf_counter()
    while time.perf_counter() < began + seconds:
        tick = time.perf_counter()
        done = uvloop.run(
            load.run(
                "127.0.0.1",
                side.port,
                [request(tokens)],
                connections=1,
                seconds=10.0,
                max_requests=1,
            )
        )
        answered += done.answered
        took = time.perf_counter() - tick
        if done.not_answered:
            raise RuntimeError("a request was not answered")
        time.sleep(max(0.0, PAUSE - took))
    time.sleep(0.3)  # the access log is on its way
    after, took = cpu_seconds(side.pids), time.perf_counter() - began
    return {name: (after[name] - before[name] - at_rest[name] * took) * 1e6 / answered for name in after}


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(prog="python -m bench.answer_length", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--seconds", type=float, default=5.0, help="length of one measurement")
    parser.add_argument("--rounds", type=int, default=3, help="how often each is made")
    parser.add_argument("--tokens", type=int, nargs="+", default=[20, 2000], help="lengths of answers")
    parser.add_argument("--transport", choices=("grpc", "h2"), default="grpc", help="what serves ext_proc")
    parser.add_argument("--event-pause", type=float, default=0.0, help="seconds from one event to the next")
    parser.add_argument("--engine", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.engine:
        uvloop.run(engine(options.engine, options.event_pause))
        return
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        (port,) = free_ports(1)
        run_engine = [sys.executable, "-m", "bench.answer_length", "--engine", str(port)]
        run_engine += ["--event-pause", str(options.event_pause)]
        engine_process = stack.enter_context(started("engine", run_engine, folder / "engine.log", cwd=ROOT))
        engine_process.wait_for(port, CHAT, START_SECONDS, body=request(1).partition(b"\r\n\r\n")[2])
        running = [stack.enter_context(tidegate(folder, source, port, options.transport)) for source in SOURCES]
        seen: dict[tuple[str, int, str], list[float]] = {}
        for _ in range(options.rounds):
            for side in running:
                at_rest = idle(side)
                for tokens in options.tokens:
                    for process, cost in measure(side, tokens, options.seconds, at_rest).items():
                        seen.setdefault((side.name, tokens, process), []).append(cost)
    print("| usage | tokens | Tidegate, us | Envoy, us |\n|---|---|---|---|")
    for source in SOURCES:
        for tokens in options.tokens:
            tidegate_us, envoy_us = (median(seen[source, tokens, process]) for process in ("tidegate", "envoy"))
            print(f"| {source} | {tokens} | {tidegate_us:.0f} | {envoy_us:.0f} |")


if __name__ == "__main__":
    main()
