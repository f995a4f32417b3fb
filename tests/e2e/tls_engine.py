"""An engine that is served over TLS, and asks for certificates."""

import contextlib
import json
import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from tests.ports import free_port

METRICS = b"# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running 0\n"


class _Engine(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._answer("text/plain", METRICS)

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        usage = {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}
        self._answer("application/json", json.dumps({"object": "chat.completion", "usage": usage}).encode())

    def _answer(self, kind: str, body: bytes) -> None:
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        """Say nothing: peers that are turned away are what is tested."""


@contextlib.contextmanager
def secured(identity: tuple[Path, Path], client_ca: Path) -> Iterator[int]:
    """Run one that shows ``identity``, a certificate and its key, to peers that show one of ``client_ca``."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_cert_chain(*identity)
    context.load_verify_locations(client_ca)
    server = _Server(("127.0.0.1", free_port()), _Engine)
    # Not while a connection is accepted, which would hold up the others.
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
