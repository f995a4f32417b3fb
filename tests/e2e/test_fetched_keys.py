"""Who asks, by tokens whose issuer's keys Envoy fetches, and by a filter of one's own."""

import contextlib
import http.client
import json
import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.authority import Authority
from tests.e2e.echoing_engine import echoing
from tests.e2e.stack import Stack, configuration, until, up
from tests.ports import free_port
from tests.tokens_issued import Issuer
from tidegate.runtime.callers import hashed

KEY = f"sk-test-{'1' * 32}"
ISSUER = Issuer()
BADGES = """
function envoy_on_request(request)
  local badge = request:headers():get("x-badge")
  if badge == "open sesame" then
    request:streamInfo():dynamicMetadata():set("badges", "who", {name = "acme"})
  end
end
"""
BODY = json.dumps({"model": "m", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 4}).encode()


class _Keys(BaseHTTPRequestHandler):
    """Serves the issuer's keys, and nothing else."""

    def do_GET(self) -> None:
        body = json.dumps(ISSUER.key_set()).encode()
        self.send_response(200 if self.path == "/keys" else 404)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@contextlib.contextmanager
def issuer_answers(port: int, authority: Authority) -> Iterator[None]:
    server = ThreadingHTTPServer(("127.0.0.1", port), _Keys)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*authority.issue("issuer"))
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def limit(stack: Stack, **headers: str) -> str:
    """Return the limit that says whose request it was, or the status that says that it was nobody's."""
    connection = http.client.HTTPConnection("127.0.0.1", stack.config["listener"]["port"], timeout=20)
    with contextlib.closing(connection):
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request("POST", "/v1/chat/completions", BODY, {"content-type": "application/json", **sent})
        answer = connection.getresponse()
        answer.read()
        return answer.getheader("x-ratelimit-limit-requests") or str(answer.status)


def test_keys_are_fetched_when_the_issuer_answers_and_another_filter_may_say_who_asks(tmp_path: Path) -> None:
    authority, port = Authority(tmp_path), free_port()
    with echoing() as engine:
        config: dict[str, Any] = configuration([engine], engine="none")
        config["listener"]["filters"] = [
            {
                "name": "badges",
                "type": "envoy.extensions.filters.http.lua.v3.Lua",
                "config": {"default_source_code": {"inline_string": BADGES}},
            }
        ]
        config["authentication"] = {
            "jwt": {
                "issuer": ISSUER.name,
                "jwks_uri": f"https://127.0.0.1:{port}/keys",
                "jwks_ca": str(authority.certificate),
            },
            "metadata": {"namespace": "badges", "path": ["who", "name"]},
        }
        config["tenants"] = [
            {"name": "acme", "limits": {"requests_per_minute": 1000}},
            {"name": "other", "limits": {"requests_per_minute": 2000}},
        ]
        config["keys"] = [{"name": "k", "tenant": "other", "hash": hashed(KEY)}]
        with up(tmp_path, config) as stack:
            # While nobody has the issuer's keys, no token is good, and API keys are.
            token = f"Bearer {ISSUER.token(sub='acme')}"
            assert limit(stack, authorization=token) == "401"
            assert limit(stack, x_api_key=KEY) == "2000"
            assert limit(stack, x_badge="open sesame") == "1000"
            assert limit(stack, x_badge="open sesame", x_api_key=KEY) == "1000"
            assert limit(stack, x_badge="open, please", x_api_key=KEY) == "2000"
            assert limit(stack, x_badge="open, please") == "401"
            with issuer_answers(port, authority):
                until(lambda: limit(stack, authorization=token) == "1000", 10, "the keys were fetched")
            assert limit(stack, authorization=f"Bearer {Issuer().token(sub='acme')}") == "401"
            assert limit(stack, authorization=token) == "1000", "they are kept"
