"""A running llama.cpp: an engine that nobody of this project wrote, in a process of its own.

A test takes the fixture ``llamacpp``; a test that needs several engines, or kills one, calls ``running`` itself.
"""

import http.client
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.e2e.llamacpp import gguf_model
from tests.ports import free_port

SERVER = Path(__file__).with_name("server.py")
START_SECONDS = 30.0  # half a second on an idle machine
MODEL = gguf_model.NAME


@dataclass(frozen=True, slots=True)
class Engine:
    """One llama.cpp server.

    Attributes:
        address: where it listens, as ``ip:port``.
        process: the server's process, for a test that wants to stop it.
        log: the file that has its output.
    """

    address: str
    process: subprocess.Popen[bytes]
    log: Path

    @property
    def url(self) -> str:
        """The base of its URLs, without a slash at the end."""
        return f"http://{self.address}"


@contextmanager
def running(model: Path, log: Path, *, port: int | None = None) -> Iterator[Engine]:
    """Serve ``model`` until the block ends.

    Args:
        model: a GGUF file.
        log: where the server's output goes.
        port: where it listens on 127.0.0.1; a free port, if not given.

    Raises:
        RuntimeError: the server ended, or is not healthy after ``START_SECONDS``.
    """
    port = free_port() if port is None else port
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, str(SERVER), str(model), str(port)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    engine = Engine(f"127.0.0.1:{port}", process, log)
    try:
        _wait_until_healthy(engine)
        yield engine
    finally:
        process.kill()
        process.wait(timeout=10)


def _wait_until_healthy(engine: Engine) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and engine.process.poll() is None:
        if _healthy(engine.address):
            return
        time.sleep(0.05)
    state = "not healthy" if engine.process.poll() is None else f"ended with {engine.process.returncode}"
    raise RuntimeError(f"llama.cpp is {state}; its last output:\n{engine.log.read_text(errors='replace')[-2000:]}")


def _healthy(address: str) -> bool:
    connection = http.client.HTTPConnection(address, timeout=2)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status == http.HTTPStatus.OK
    except (OSError, http.client.HTTPException):
        return False  # not listening yet
    finally:
        connection.close()


@pytest.fixture(scope="session")
def gguf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model's file, made once per run."""
    path = tmp_path_factory.mktemp("llamacpp") / f"{MODEL}.gguf"
    gguf_model.write(path, seed=0)
    return path


@pytest.fixture
def llamacpp(gguf: Path, tmp_path: Path) -> Iterator[Engine]:
    """A healthy engine of the test's own."""
    with running(gguf, tmp_path / "llamacpp.log") as engine:
        yield engine
