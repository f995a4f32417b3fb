"""``tidegate worker``: one of several processes that decide. ``tidegate serve`` starts it; nobody else can."""

import asyncio
import signal
import socket

import click
import uvloop

from tidegate.cli._options import LogFormat, log_format_option
from tidegate.runtime import processes
from tidegate.runtime.services import BindError
from tidegate.runtime.workers.worker import Worker
from tidegate.telemetry import log
from tidegate.tokens.vocabulary import VocabularyError


@click.command("worker", hidden=True)
@click.option("--channel", type=int, required=True, help="The descriptor of the stream to the main process.")
@log_format_option
def command(channel: int, log_format: LogFormat) -> None:
    """Answer ext_proc as the main process says. SIGTERM: leave without losing a request."""
    processes.die_with_parent()
    log.setup(log_format)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        try:
            runner.run(_work(socket.socket(fileno=channel)))
        except* (BindError, VocabularyError) as group:
            for error in group.exceptions:
                click.echo(f"tidegate: {error}", err=True)
            raise SystemExit(1) from None


async def _work(sock: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    worker = Worker()
    loop.add_signal_handler(signal.SIGTERM, worker.leave)
    # They are meant for the main process.
    for number in (signal.SIGINT, signal.SIGHUP):
        loop.add_signal_handler(number, lambda: None)
    await worker.run(sock)
