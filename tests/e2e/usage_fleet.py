"""A stack whose pools read usage in different ways, with a scripted engine in each, and what is counted of it."""

import contextlib
import http.client
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.e2e.scripted_engine import Script, ScriptedEngine, scripted_engine
from tests.e2e.stack import Stack, configuration, until, up

MESSAGES = [{"role": "user", "content": "hello"}]


class Fleet:
    """The stack, with one scripted engine in each pool."""

    def __init__(self, stack: Stack, engines: dict[str, ScriptedEngine]) -> None:
        self.stack = stack
        self.engines = engines
        self.port: int = stack.config["listener"]["port"]

    def play(self, pool: str, *chunks: bytes, path: str = "/v1/chat/completions", **script: Any) -> Any:
        """Have the engine of ``pool`` answer so from now on; return what asks for it."""
        self.engines[pool].scripts[""] = Script(chunks, **script)

        def ask(**fields: Any) -> bytes:
            return self.send(pool, path=path, **fields)

        return ask

    def send(self, pool: str, *, path: str = "/v1/chat/completions", **fields: Any) -> bytes:
        with self.opened(pool, path=path, **fields) as answer:
            return answer.read()

    @contextlib.contextmanager
    def opened(
        self, pool: str, *, path: str = "/v1/chat/completions", **fields: Any
    ) -> Iterator[http.client.HTTPResponse]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=90)
        body = {"model": pool, "messages": MESSAGES, "max_tokens": 99, "prompt": "x", "input": "x", "stream": True}
        connection.request("POST", path, json.dumps({**body, **fields}), {"content-type": "application/json"})
        try:
            yield connection.getresponse()
        finally:
            connection.close()

    def _over(self, pool: str) -> bool:
        total = self.stack.total
        return total("tidegate_requests_total", pool=pool) >= total("tidegate_incoming_requests_total", pool=pool)

    def counted(self, pool: str) -> dict[str, int]:
        """Return what is counted for ``pool``, once everything that was asked of it is over."""
        until(lambda: self._over(pool), 20, f"every request to {pool} is over")
        figures: Counter[str] = Counter()
        for (sample, its), value in self.stack.metrics().items():
            labels, name = dict(its), sample.removeprefix("tidegate_").removesuffix("_total")
            if labels.get("pool") == pool and name in COUNTED:
                figures[name + labels.get("kind", "") + labels.get("outcome", "")] += int(value)
        return {name: value for name, value in figures.items() if value}


COUNTED = {
    "requests",
    "prompt_tokens",
    "completion_tokens",
    "cached_prompt_tokens",
    "reasoning_tokens",
    "unreported_tokens",
    "usage_unknown",
    "answers_read_in_part",
}


class Counting:
    """What came on top."""

    def __init__(self, fleet: Fleet, pool: str) -> None:
        self._fleet, self._pool, self._before = fleet, pool, fleet.counted(pool)

    def __call__(self) -> dict[str, int]:
        after = self._fleet.counted(self._pool)
        return {
            name: value - self._before.get(name, 0)
            for name, value in after.items()
            if value != self._before.get(name, 0)
        }


@contextlib.contextmanager
def usage_fleet(folder: Path) -> Iterator[Fleet]:
    """Run one, with the pools ``read``, ``logged`` and ``asked``, each of which serves the model of its name."""
    ways: dict[str, dict[str, Any]] = {
        "read": {"usage": "stream"},
        "logged": {},
        "asked": {"inject_usage": True},
    }
    with contextlib.ExitStack() as running:
        engines = {name: running.enter_context(scripted_engine()) for name in ways}
        config = configuration([])
        config["pools"] = [
            {
                "name": name,
                "engine": "none",
                "models": [name],
                "endpoints": [{"address": f"127.0.0.1:{engines[name].port}"}],
                **keys,
            }
            for name, keys in ways.items()
        ]
        yield Fleet(running.enter_context(up(folder, config)), engines)
