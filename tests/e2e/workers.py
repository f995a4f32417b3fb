"""Two workers behind one Envoy: their processes, and a load that remembers what became of every request."""

import contextlib
import http.client
import json
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from tests.e2e.stack import MODEL, Stack, configuration, fetch, until, up
from tests.ports import free_port


def with_workers(engine_ports: Sequence[int], workers: int = 2, policy: str = "least_request") -> dict[str, Any]:
    """Return a configuration with several workers, which take ports in a row."""
    config = configuration(engine_ports, policy)
    ports = [free_port() for _ in range(workers)]
    while ports[-1] - ports[0] != workers - 1:
        ports = [*ports[1:], free_port()]
    config["control"] |= {"ext_proc_port": ports[0], "workers": workers}
    return config


@dataclass
class Workers:
    """The workers of a running stack."""

    stack: Stack

    def status(self) -> list[dict[str, Any]]:
        """Return what the status page says of them."""
        answer: list[dict[str, Any]] = fetch(f"{self.stack.admin}/status")[1]["workers"]
        return answer

    def process(self, number: int) -> psutil.Process:
        """Return the process of worker ``number``, from 0."""
        return psutil.Process(self.status()[number]["pid"])

    def ready(self, seconds: float = 20) -> None:
        """Wait until all are ready, and Envoy has found them well."""
        until(lambda: all(worker["state"] == "ready" for worker in self.status()), seconds, "all workers are ready")
        until(lambda: self._healthy() == len(self.status()), 10, "Envoy finds them well")

    def _healthy(self) -> int:
        return self.stat("cluster.tidegate_ext_proc.membership_healthy")

    def stat(self, name: str) -> int:
        """Return one of Envoy's figures."""
        page = fetch(f"http://127.0.0.1:{self.stack.config['envoy']['admin_port']}/stats?filter=^{name}$")[1]
        return int(page.rsplit(": ", 1)[1])


@contextlib.contextmanager
def running(folder: Path, config: dict[str, Any]) -> Iterator[tuple[Stack, Workers]]:
    """Run a stack with workers; yield it once Envoy has found all of them well."""
    with up(folder, config) as stack:
        workers = Workers(stack)
        workers.ready()
        yield stack, workers


@dataclass
class Answer:
    """What became of one request."""

    sent_at: float
    seconds: float
    status: int


@dataclass
class Load:
    """Requests without a pause, from several clients."""

    stack: Stack
    answers: list[Answer] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    def failures(self) -> list[Answer]:
        """Return the answers that were not 200."""
        return [answer for answer in self.answers if answer.status != 200]

    def more(self, count: int, seconds: float = 20) -> None:
        """Wait until so many more requests were answered."""
        enough = len(self.answers) + count
        until(lambda: len(self.answers) >= enough, seconds, f"{count} more answers")

    @contextlib.contextmanager
    def from_clients(self, clients: int, pause: float = 0.01) -> Iterator["Load"]:
        """Send requests as long as the block runs, and wait for the last answers."""
        over = threading.Event()

        def ask() -> None:
            while not over.wait(pause):
                began = time.monotonic()
                try:
                    status = self.stack.ask(max_tokens=1)[0]
                except OSError as error:
                    self.errors.append(repr(error))
                    return
                self.answers.append(Answer(began, time.monotonic() - began, status))

        threads = [threading.Thread(target=ask) for _ in range(clients)]
        for thread in threads:
            thread.start()
        try:
            yield self
        finally:
            over.set()
            for thread in threads:
                thread.join(60)
        assert not self.errors, self.errors


class Stream:
    """A streamed answer that is read in a thread."""

    def __init__(self, stack: Stack, tokens: int) -> None:
        self.status = 0
        self.text = ""
        self._stack = stack
        self._tokens = tokens
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self._stack.config["listener"]["port"], timeout=60)
        messages = [{"role": "user", "content": "tell"}]
        body = {"model": MODEL, "messages": messages, "max_tokens": self._tokens, "ignore_eos": True, "stream": True}
        with contextlib.closing(connection):
            connection.request("POST", "/v1/chat/completions", json.dumps(body), {"content-type": "application/json"})
            answer = connection.getresponse()
            self.status = answer.status
            self.text = answer.read().decode()

    @property
    def is_running(self) -> bool:
        """Whether it is still being read."""
        return self._thread.is_alive()

    def finished(self) -> bool:
        """Wait for its end; return whether it came whole."""
        self._thread.join(60)
        return self.status == 200 and self.text.endswith("data: [DONE]\n\n")
