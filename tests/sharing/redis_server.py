"""A real Redis of a test's own."""

import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import redis

from tests.ports import free_port

START_SECONDS = 10.0
HERE = "127.0.0.1"


class RedisServer:
    """Runs until the block around it ends; ``begin`` it again after a ``kill``."""

    def __init__(self, folder: Path, *options: str, tls: bool = False, **admin: Any) -> None:
        self.port = free_port()
        self._folder = folder
        self._tls = tls
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None
        self._admin = redis.Redis(host=HERE, port=self.port, socket_timeout=5, **admin)

    def begin(self) -> None:
        ports = ("--port", "0", "--tls-port", str(self.port)) if self._tls else ("--port", str(self.port))
        options = (*ports, "--bind", HERE, "--save", "", "--dir", str(self._folder))
        self._process = subprocess.Popen(
            ["redis-server", *options, "--enable-debug-command", "yes", *self._options],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                self._admin.ping()
            except redis.ConnectionError:
                assert time.monotonic() < deadline, "redis-server does not answer"
                time.sleep(0.01)
            else:
                return

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def freeze(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def sleep(self, seconds: float) -> None:
        """Have it sleep, without waiting for that."""
        with socket.create_connection((HERE, self.port)) as asking:
            asking.sendall(f"DEBUG SLEEP {seconds}\r\n".encode())
            time.sleep(0.05)

    def do(self, *command: str | int) -> Any:
        """Return what Redis answers to ``command``."""
        return self._admin.execute_command(*command)  # type: ignore[no-untyped-call]

    def close(self) -> None:
        self._admin.close()
        self.kill()


@contextmanager
def redis_server(folder: Path, *options: str, tls: bool = False, **admin: Any) -> Iterator[RedisServer]:
    if shutil.which("redis-server") is None:
        pytest.skip("no redis-server on this machine (Debian: apt-get install redis-server)")
    server = RedisServer(folder, *options, tls=tls, **admin)
    try:
        server.begin()
        yield server
    finally:
        server.close()
