"""Copies of requests for another pool, and the fuse, through a real Envoy."""

import contextlib
import json
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.e2e.stack import configuration, fetch, up
from tests.e2e.test_routes import Gateway, Seen, chat, recording

CHAT = "/v1/chat/completions"


def test_a_share_of_the_requests_is_copied_and_nobody_waits_for_the_copies(tmp_path: Path) -> None:
    seen: list[Seen] = []
    with contextlib.ExitStack() as running:
        ports = {pool: running.enter_context(recording(pool, seen)) for pool in ("default", "shadow")}
        config = configuration([ports["default"]], engine="none")
        pool = config["pools"][0]
        at = [{"address": f"127.0.0.1:{ports['shadow']}"}]
        config["pools"].append({**pool, "name": "shadow", "models": [], "endpoints": at})
        pool["mirror"] = {"pool": "shadow", "percent": 50}
        stack = running.enter_context(up(tmp_path, config))
        gateway = Gateway(stack, [])
        sent = [chat("m", f"number {number}") for number in range(200)]
        with ThreadPoolExecutor(8) as clients:
            answers = list(clients.map(lambda body: gateway.send(CHAT, body), sent))
        assert {(status, json.loads(body)["model"]) for status, body in answers} == {(200, "default")}
        stack.settle()
        went = Counter(one.pool for one in seen)
        assert went["default"] == 200
        assert 60 <= went["shadow"] <= 140
        assert {one.body for one in seen if one.pool == "shadow"} <= {*sent}
        assert stack.total("tidegate_requests_total", pool="shadow") == 0


def test_what_comes_beyond_the_fuse_is_refused_in_the_apis_own_shape(tmp_path: Path) -> None:
    seen: list[Seen] = []
    with recording("default", seen) as port:
        config = configuration([port], engine="none")
        config["listener"]["max_requests_per_second"] = 5
        with up(tmp_path, config) as stack:
            answers = [stack.ask() for _ in range(40)]
            statuses = Counter(status for status, _, _ in answers)
            assert statuses[200] >= 5
            assert statuses[429] >= 10
            assert statuses.total() == statuses[200] + statuses[429]
            (_, body, headers) = next(answer for answer in answers if answer[0] == 429)
            assert (body["error"]["type"], body["error"]["code"]) == ("rate_limit_error", "rate_limit_exceeded")
            assert headers["retry-after"] == "1"
            stats = f"http://127.0.0.1:{config['envoy']['admin_port']}/stats?filter=tidegate_fuse"
            assert f"rate_limited: {statuses[429]}" in str(fetch(stats)[1])
