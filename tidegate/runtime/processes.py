"""Child processes that do not outlive us: started, watched, started again when they die, and stopped together."""

import asyncio
import contextlib
import ctypes
import logging
import signal
from collections.abc import Sequence
from dataclasses import dataclass

from tidegate.telemetry.log import event

logger = logging.getLogger("tidegate.processes")

GRACE_SECONDS = 2.0
"""How long a child may take to end after SIGTERM before it is killed."""

RESTART_DELAYS = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
"""Seconds before a dead child is started again; the last one repeats. A child that lived for LIVED starts over."""

LIVED_SECONDS = 10.0

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True, slots=True)
class Program:
    """A child process: its name in messages and its command line."""

    name: str
    command: Sequence[str]


def die_with_parent() -> None:
    """Have the kernel send SIGKILL to this process when its parent dies, even by SIGKILL (prctl(2); Linux)."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


class Child:
    """One running child process, in a process group of its own so that a Ctrl-C reaches only us.

    Attributes:
        program: what it runs.
        announced: it has said that it will end.
    """

    def __init__(self, program: Program) -> None:
        """Describe the child; ``start`` runs it."""
        self.program = program
        self.announced = False
        self._process: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int | None:
        """The process number, while it has one."""
        return self._process.pid if self._process else None

    @property
    def status(self) -> int | None:
        """The exit status, negative for a signal, once it has ended."""
        return self._process.returncode if self._process else None

    async def start(self) -> None:
        """Start the process.

        Raises:
            OSError: the program cannot be run.
        """
        self._process = await asyncio.create_subprocess_exec(
            *self.program.command,
            stdin=asyncio.subprocess.DEVNULL,
            process_group=0,
            preexec_fn=die_with_parent,
        )

    async def wait(self) -> int:
        """Wait for its end; return the exit status, negative for a signal."""
        if self._process is None:
            raise RuntimeError(f"{self.program.name} was not started")
        return await self._process.wait()

    def signal(self, number: signal.Signals) -> None:
        """Send it ``number``, if it runs."""
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(number)

    async def stop(self) -> None:
        """End it: SIGTERM, and SIGKILL when it takes longer than ``GRACE_SECONDS``."""
        process = self._process
        if process is None or process.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        try:
            await asyncio.wait_for(process.wait(), GRACE_SECONDS)
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()


class Children:
    """The children of one run."""

    def __init__(self) -> None:
        self._children: list[Child] = []

    async def start(self, program: Program) -> Child:
        """Start ``program``; it is stopped by ``stop``.

        Raises:
            OSError: it cannot be run.
        """
        child = Child(program)
        await self.adopt(child)
        return child

    async def adopt(self, child: Child) -> None:
        """Start ``child``; it is stopped by ``stop``.

        Raises:
            OSError: it cannot be run.
        """
        self._children.append(child)
        await child.start()
        event(logger, "started", program=child.program.name, pid=child.pid)

    async def keep(self, child: Child) -> None:
        """Start ``child`` again whenever it ends, until cancelled."""
        clock = asyncio.get_running_loop().time
        deaths = 0
        while True:
            started = clock()
            status = await child.wait()
            deaths = 1 if clock() - started > LIVED_SECONDS else deaths + 1
            event(
                logger,
                "ended" if child.announced else "ended unexpectedly",
                level=logging.INFO if child.announced else logging.ERROR,
                program=child.program.name,
                status=status,
                restart_in_seconds=_delay(deaths),
            )
            await asyncio.sleep(_delay(deaths))
            while not await _started_again(child, _delay(deaths + 1)):
                deaths += 1
                await asyncio.sleep(_delay(deaths))

    async def stop(self) -> None:
        """Stop all children, at the same time."""
        await asyncio.gather(*(child.stop() for child in self._children))


def _delay(deaths: int) -> float:
    """Return the seconds to wait after so many ends in a row."""
    return RESTART_DELAYS[min(deaths, len(RESTART_DELAYS)) - 1]


async def _started_again(child: Child, delay: float) -> bool:
    """Start ``child``; where it cannot be run (its file is being replaced, say), log that and return ``False``."""
    try:
        await child.start()
    except OSError as error:
        reason = error.strerror
        name = child.program.name
        event(logger, "cannot be run", level=logging.ERROR, program=name, reason=reason, again_in_seconds=delay)
        return False
    event(logger, "started", program=child.program.name, pid=child.pid)
    return True
