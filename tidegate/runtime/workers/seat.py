"""One worker as the main process sees it: its process, its channel, and what it owes."""

import asyncio
import enum
import functools
import signal
import socket
import sys
from typing import Protocol

from tidegate.runtime.processes import Child, Program
from tidegate.runtime.workers import messages
from tidegate.runtime.workers.channel import Channel
from tidegate.runtime.workers.messages import FromWorker, Message, encode


class State(enum.Enum):
    """How far a worker is."""

    STARTING = "starting"
    READY = "ready"
    LEAVING = "leaving"
    """It answers until Envoy has noticed that it leaves."""
    DOWN = "down"


class Host(Protocol):
    """What a seat tells."""

    def arrived(self, seat: "Seat") -> None:
        """A new process can be spoken to."""
        ...

    def received(self, seat: "Seat", message: FromWorker) -> None:
        """It said something."""
        ...

    def left(self, seat: "Seat") -> None:
        """It will say nothing more. Called once for each ``arrived``."""
        ...


class Seat(Child):
    """The place of one worker. Its processes may change; the port stays.

    Attributes:
        port: where it serves Envoy.
        state: how far the present process is.
        starts: how many processes there were.
        prepared: the number of the last configuration that it has prepared.
        deciding: the number of the one by which it decides.
        heard_at: when it last said something, on the event loop's clock.
        undelivered: reservations that die with it.
    """

    def __init__(self, number: int, port: int, log_format: str, host: Host) -> None:
        """Describe worker ``number``, which is to serve on ``port``; ``start`` runs it."""
        command = (sys.executable, "-m", "tidegate", "worker", "--log-format", log_format)
        super().__init__(Program(f"worker {number}", command))
        self.port = port
        self.state = State.DOWN
        self.starts = 0
        self.prepared = self.deciding = 0
        self.heard_at = 0.0
        self.undelivered: set[str] = set()
        self._host = host
        self._channel: Channel[FromWorker] | None = None

    async def start(self) -> None:
        """Start a process that has the other end of a new channel.

        Raises:
            OSError: it cannot be run.
        """
        self._leave(self.starts)
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                # No preexec_fn: it would have gRPC stop its threads around the fork. The worker itself sees to it that
                # it dies with us. A session of its own keeps a Ctrl-C from it.
                self._process = await asyncio.create_subprocess_exec(
                    *self.program.command,
                    *("--channel", str(theirs.fileno())),
                    stdin=asyncio.subprocess.DEVNULL,
                    pass_fds=(theirs.fileno(),),
                    start_new_session=True,
                )
        except BaseException:
            ours.close()
            raise
        self.starts += 1
        self.announced = False
        self.state, self.prepared, self.deciding = State.STARTING, 0, 0
        self.heard_at = asyncio.get_running_loop().time()
        this = self.starts
        self._channel = await Channel.over(
            ours, messages.from_worker, functools.partial(self._received, this), functools.partial(self._leave, this)
        )
        self._host.arrived(self)

    @property
    def is_up(self) -> bool:
        """Whether there is a process that can be spoken to."""
        return self.state is not State.DOWN

    @property
    def decides(self) -> bool:
        """Whether Envoy may be asking it."""
        return self.state in {State.READY, State.LEAVING}

    def send(self, message: Message) -> None:
        """Send ``message``, if there is a process."""
        self.send_encoded(encode(message))

    def send_encoded(self, frame: bytes) -> None:
        """Send what ``encode`` made of a message."""
        if self._channel is not None and self.is_up:
            self._channel.send_encoded(frame)

    def flush(self) -> None:
        """Send now what is to be sent."""
        if self._channel is not None:
            self._channel.flush()

    def kill(self) -> None:
        """End the process, however it fares."""
        self.signal(signal.SIGKILL)

    def _received(self, start: int, message: FromWorker) -> None:
        if start == self.starts and self.is_up:
            self.heard_at = asyncio.get_running_loop().time()
            self._host.received(self, message)

    def _leave(self, start: int) -> None:
        """Take note that process number ``start`` says nothing more; without a channel it is of no use."""
        if start != self.starts or not self.is_up:
            return
        self.state = State.DOWN
        if not self.announced:
            self.kill()
        if self._channel is not None:
            self._channel.abort()
        self._host.left(self)
