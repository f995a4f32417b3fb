"""Processes under measurement: started in a group of their own, watched through /proc, ended whatever happens."""

import http.client
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

STOP_SECONDS = 5.0  # between the request to end and the end by force
PORTS = range(
    10_000, 20_000
)  # below those that the kernel gives to outgoing connections, and beside those of the tests
LOG_TAIL = 2_000  # characters of a log shown with an error
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


class NotReady(Exception):  # noqa: N818  it reads as what it says
    """A process ended, or did not answer in time; the message has the end of its log."""


@dataclass(frozen=True, slots=True)
class Stat:
    """What /proc/PID/stat says, as far as it is needed here (proc_pid_stat(5)).

    Attributes:
        pid: the process.
        parent: its parent process.
        ticks: user and system time of all its threads, in clock ticks.
    """

    pid: int
    parent: int
    ticks: int


def parse_stat(line: str) -> Stat:
    """Read one line of /proc/PID/stat.

    The second field, the command, stands in parentheses and may hold spaces and parentheses itself: the fields are
    counted from its last closing parenthesis.

    Raises:
        ValueError: it is not such a line.
    """
    head, closed, tail = line.rpartition(")")
    fields = tail.split()
    if not closed or len(fields) < 13:
        raise ValueError(f"not a line of /proc/PID/stat: {line[:80]!r}")
    return Stat(pid=int(head.split("(", 1)[0]), parent=int(fields[1]), ticks=int(fields[11]) + int(fields[12]))


def tree_ticks(root: int, stats: Mapping[int, Stat]) -> int:
    """Return the ticks of ``root`` and of all its descendants that are alive."""
    total, reached, grew = 0, {root}, True
    while grew:
        more = {stat.pid for stat in stats.values() if stat.parent in reached} - reached
        reached |= more
        grew = bool(more)
    for pid in reached:
        total += stats[pid].ticks if pid in stats else 0
    return total


def cpu_seconds(pids: Mapping[str, int]) -> dict[str, float]:
    """Return the CPU time used so far by each process, its descendants included, in seconds.

    The kernel counts in ticks of 10 ms: over a window of seconds the error is below a percent.
    """
    stats: dict[int, Stat] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            stat = parse_stat(path.read_text(encoding="utf-8", errors="replace"))
        except OSError:
            continue  # it ended meanwhile
        stats[stat.pid] = stat
    return {name: tree_ticks(pid, stats) / TICKS_PER_SECOND for name, pid in pids.items()}


def free_ports(count: int) -> list[int]:
    """Return ``count`` different TCP ports of 127.0.0.1 on which nobody listens.

    Raises:
        OSError: there are not as many.
    """
    found: list[int] = []
    first = os.getpid() * 37 % len(PORTS)  # two runs at once look in different places
    for at in range(len(PORTS)):
        port = PORTS[(first + at) % len(PORTS)]
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        found.append(port)
        if len(found) == count:
            return found
    raise OSError(f"fewer than {count} free ports")


@dataclass(frozen=True, slots=True)
class Running:
    """A process that was started here, and the file that has its output."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path

    def wait_for(self, port: int, path: str, seconds: float, *, body: bytes | None = None) -> None:
        """Ask 127.0.0.1:``port`` for ``path`` (POST, if there is a ``body``) until the answer is 200.

        Raises:
            NotReady: the process ended, or ``seconds`` are over.
        """
        deadline = time.monotonic() + seconds
        last = "no connection"
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                raise NotReady(f"{self.name} ended with status {self.process.returncode}{self._tail()}")
            last = _ask(port, path, body)
            if last == "200":
                return
            time.sleep(0.05)
        raise NotReady(f"{self.name}: {path} on port {port} gave {last} for {seconds:g} s{self._tail()}")

    def _tail(self) -> str:
        text = self.log.read_text(encoding="utf-8", errors="replace").strip()[-LOG_TAIL:]
        return f"; its last output:\n{text}" if text else ""


def _ask(port: int, path: str, body: bytes | None) -> str:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=2)
    try:
        headers = {} if body is None else {"content-type": "application/json"}
        connection.request("GET" if body is None else "POST", path, body, headers)
        return str(connection.getresponse().status)
    except (OSError, http.client.HTTPException):
        return "no connection"
    finally:
        connection.close()


def page(port: int, path: str) -> str:
    """Return the page at ``path`` of 127.0.0.1:``port``.

    Raises:
        NotReady: it is not there.
    """
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        text = answer.read().decode()
    except (OSError, http.client.HTTPException) as error:
        raise NotReady(f"{path} on port {port}: {type(error).__name__}") from None
    finally:
        connection.close()
    if answer.status != 200:
        raise NotReady(f"{path} on port {port} gave {answer.status}")
    return text


@contextmanager
def started(name: str, command: Sequence[str], log: Path, *, cwd: Path | None = None) -> Iterator[Running]:
    """Run ``command`` until the block ends; then end it and everything it started."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        yield Running(name, process, log)
    finally:
        _stop(process)


def _stop(process: subprocess.Popen[bytes]) -> None:
    # Both signals go to the group, the second also after its leader's end: what the leader left behind is still in it.
    for ending, seconds in ((signal.SIGTERM, STOP_SECONDS), (signal.SIGKILL, STOP_SECONDS)):
        try:
            os.killpg(process.pid, ending)
            process.wait(timeout=seconds)
        except ProcessLookupError:
            break
        except subprocess.TimeoutExpired:
            continue
    process.wait(timeout=STOP_SECONDS)
