"""Large bodies from strangers, and how much of them is taken."""

import contextlib
import socket

from tests.e2e.stack import Stack, fetch

LARGE = 20_000_000
HEAD = (
    "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
    f"x-api-key: sk-wrong\r\ncontent-length: {LARGE}\r\n\r\n"
).encode()


def answered_unsent(stack: Stack) -> bytes:
    """Announce a large body with a wrong key, send nothing of it, and return the answer."""
    with socket.create_connection(("127.0.0.1", stack.config["listener"]["port"]), 10) as client:
        client.sendall(HEAD)
        return _all_of(client)


def taken_of_a_flood(stack: Stack) -> int:
    """Pour a large body with a wrong key into Envoy without a look at its answer; return the bytes that it read."""
    before = _received(stack)
    with socket.create_connection(("127.0.0.1", stack.config["listener"]["port"]), 10) as client:
        client.sendall(HEAD)
        with contextlib.suppress(OSError):
            for _ in range(LARGE // 100_000):
                client.sendall(b" " * 100_000)
            _all_of(client)
    return _received(stack) - before


def _all_of(client: socket.socket) -> bytes:
    answer = b""
    while data := client.recv(65_536):
        answer += data
        if b"invalid_api_key" in answer:
            break
    return answer


def _received(stack: Stack) -> int:
    """Return the bytes that Envoy has read from clients."""
    page = fetch(f"http://127.0.0.1:{stack.config['envoy']['admin_port']}/stats?filter=downstream_cx_rx_bytes_total")[1]
    (line,) = [line for line in page.splitlines() if line.startswith("http.") and not line.startswith("http.admin")]
    return int(line.rpartition(": ")[2])
