"""A pool that begins to have its answers read, while answers are on their way."""

import http.client
import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.e2e.scripted_engine import Script, scripted_engine
from tests.e2e.stack import Stack, configuration, until, up
from tests.extproc.answers import CHAT, CHAT_WITHOUT, chunk, stream


def send(stack: Stack) -> bytes:
    connection = http.client.HTTPConnection("127.0.0.1", stack.config["listener"]["port"], timeout=60)
    body = {"model": "m", "messages": [{"role": "user", "content": "hello"}], "stream": True}
    connection.request("POST", "/v1/chat/completions", json.dumps(body), {"content-type": "application/json"})
    try:
        return connection.getresponse().read()
    finally:
        connection.close()


def test_answers_begin_to_be_read_and_those_under_way_are_finished(tmp_path: Path) -> None:
    words = [stream(chunk("word"), done=False) for _ in range(40)]
    gate = threading.Event()
    with scripted_engine() as engine, up(tmp_path, configuration([engine.port], engine="none")) as stack:
        engine.scripts[""] = Script([CHAT])
        assert send(stack) == CHAT
        engine.scripts[""] = Script(words, gate=gate)
        with ThreadPoolExecutor(1) as pool:
            long = pool.submit(send, stack)
            time.sleep(0.5)  # half of it is there
            engine.scripts[""] = Script([CHAT])
            stack.config["pools"][0]["usage"] = "stream"
            stack.write_config()
            until(lambda: send(stack) == CHAT_WITHOUT, 20, "answers are read")
            gate.set()
            assert long.result(20) == b"".join(words)
        assert stack.total("tidegate_xds_nacks_total") == 0
