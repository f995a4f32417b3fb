"""A request that kills every engine that it is given to, among requests that are well."""

import functools
import json
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.e2e.stack import configuration, fetch, start_engine, until, up
from tests.ports import free_port

POISON = "the magic word"


def test_a_request_that_kills_engines_takes_two_of_eight_with_it(tmp_path: Path) -> None:
    ports = [free_port() for _ in range(8)]
    engines = [start_engine(tmp_path, port, options=["--speed", "20"]) for port in ports]
    try:
        for port in ports:
            until(functools.partial(healthy, port), 30, f"engine {port} is up")
            fetch(f"http://127.0.0.1:{port}/fault", {"poison": POISON})
        with up(tmp_path, configuration(ports, "round_robin")) as stack:
            with ThreadPoolExecutor(4) as clients:
                others = [clients.submit(stack.ask, f"hello {number}", max_tokens=20) for number in range(200)]
                answers = []
                for _ in range(6):  # as a client does that wants its answer
                    answers.append(stack.ask(POISON))
                    time.sleep(0.5)
            dead = [engine for engine in engines if engine.process.poll() is not None]
            assert len(dead) <= 2
            _, body, headers = answers[-1]
            assert [answer[0] for answer in answers] == [503] + [422] * 5, answers
            assert body["error"]["code"] == "request_quarantined"
            assert POISON not in json.dumps(body)
            assert "retry-after" not in headers
            # Those that one of them had taken as well were given to others; not those that had both of them.
            statuses = [other.result()[0] for other in others]
            assert statuses.count(200) >= 185
            assert set(statuses) <= {200, 503}
            assert stack.ask("hello again")[0] == 200
            assert stack.total("tidegate_quarantines_total") >= 1
            assert stack.total("tidegate_refusals_total", reason="quarantined") == 5
            assert "request quarantined" in stack.log()
    finally:
        for engine in engines:
            engine.kill()


def healthy(port: int) -> bool:
    try:
        return fetch(f"http://127.0.0.1:{port}/health", timeout=2)[0] == 200
    except OSError:
        return False
