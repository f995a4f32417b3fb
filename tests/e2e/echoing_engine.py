"""An engine that answers with the headers that it was sent."""

import contextlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tests.ports import free_port


class _Engine(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        usage = {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}
        seen = {name.lower(): value for name, value in self.headers.items()}
        body = json.dumps({"object": "chat.completion", "model": "m", "seen": seen, "usage": usage}).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.send_header("x-ratelimit-limit-requests", "7")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@contextlib.contextmanager
def echoing() -> Iterator[int]:
    """Run one, which also sends limits of its own making; yield its port."""
    server = ThreadingHTTPServer(("127.0.0.1", free_port()), _Engine)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
