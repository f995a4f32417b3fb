"""Certificates that are renewed while requests stream, in front of a real Envoy: nothing is lost, no key is shown."""

import base64
import contextlib
import functools
import http.client
import json
import ssl
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import rsa

from tests.authority import Authority
from tests.e2e.stack import MODEL, Stack, configuration, engines, fetch, until, up
from tests.test_envoy_certificates import pair
from tests.volumes import Volume
from tidegate import pem

ROTATIONS = 5
CLIENTS = 3


class Edge(NamedTuple):
    """A running stack, its certificate, and who signs it."""

    stack: Stack
    authority: Authority
    volume: Volume

    @property
    def port(self) -> int:
        return int(self.stack.config["listener"]["port"])

    def trust(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(self.authority.certificate))

    def serial(self) -> str:
        """Return the serial number that a new connection is shown."""
        shown = ssl.get_server_certificate(("127.0.0.1", self.port), timeout=20)
        return f"{x509.load_pem_x509_certificate(shown.encode()).serial_number:x}"

    def await_serial(self, serial: str) -> None:
        until(lambda: self.serial() == serial, 60, "new connections are shown it")

    def has_said(self, words: str) -> bool:
        return words in self.stack.log()

    def certificate(self, family: str) -> float:
        """Return what ``family`` says of the listener's."""
        return self.stack.metrics()[family, frozenset({("name", "listener.tls.certificate")})]

    def stat(self, name: str) -> int:
        _, text, _ = fetch(f"http://127.0.0.1:{self.stack.config['envoy']['admin_port']}/stats?filter=^{name}$")
        return int(str(text).rpartition(": ")[2] or 0)


@pytest.fixture(scope="module")
def edge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Edge]:
    folder = tmp_path_factory.mktemp("rotation")
    authority = Authority(folder / "authority")
    volume = Volume(folder / "volume", authority)
    with engines(folder, "h100") as ports:
        config = configuration(ports)
        config["control"]["state_dir"] = str(folder / "state")
        config["listener"]["tls"] = {"certificate": str(volume.certificate), "key": str(volume.key)}
        with up(folder, config) as stack:
            yield Edge(stack, authority, volume)


@dataclass
class Client:
    """Sends one streaming request after another over one connection."""

    edge: Edge
    stop: threading.Event
    tokens: int
    answered: int = 0
    faults: list[str] = field(default_factory=list)

    def run(self) -> None:
        connection = http.client.HTTPSConnection("127.0.0.1", self.edge.port, timeout=60, context=self.edge.trust())
        with contextlib.closing(connection):
            connection.connect()
            first = connection.sock
            while not self.stop.is_set() and not self.faults:
                try:
                    status, answer = stream(connection, self.tokens)
                except (OSError, http.client.HTTPException) as error:
                    self.faults.append(repr(error))
                    return
                if status != 200 or not answer.endswith(b"data: [DONE]\n\n"):
                    self.faults.append(f"{status} {answer[-100:]!r}")
                if connection.sock is not first:
                    self.faults.append("the connection was dropped")
                self.answered += 1


def have(clients: list[Client], answers: list[int]) -> bool:
    return all(client.faults or client.answered >= wanted for client, wanted in zip(clients, answers, strict=True))


def stream(connection: http.client.HTTPSConnection, tokens: int) -> tuple[int, bytes]:
    message = {"role": "user", "content": "hello"}
    body = {"model": MODEL, "messages": [message], "max_tokens": tokens, "stream": True, "ignore_eos": True}
    connection.request("POST", "/v1/chat/completions", json.dumps(body), {"content-type": "application/json"})
    answer = connection.getresponse()
    return answer.status, answer.read()


def test_renewed_certificates_are_shown_to_new_connections_and_no_other_is_dropped(edge: Edge) -> None:
    stop = threading.Event()
    clients = [Client(edge, stop, tokens=20) for _ in range(CLIENTS)]
    threads = [threading.Thread(target=client.run) for client in clients]
    changed = edge.stat("listener_manager.listener_modified")
    for thread in threads:
        thread.start()
    seen = []
    try:
        until(lambda: all(client.answered or client.faults for client in clients), 60, "requests stream")
        for _ in range(ROTATIONS):
            serial = edge.volume.renew()
            edge.await_serial(serial)
            seen.append(serial)
            more = [client.answered + 1 for client in clients]
            until(functools.partial(have, clients, more), 60, "requests go on")
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert [client.faults for client in clients] == [[]] * CLIENTS
    assert len({*seen}) == ROTATIONS
    assert edge.stat("listener_manager.listener_modified") == changed
    assert edge.certificate("tidegate_certificate_refused") == 0


def test_what_cannot_be_used_leaves_the_last_good_one(edge: Edge) -> None:
    good = edge.volume.renew()
    edge.await_serial(good)
    expired_key, expired = edge.authority.issue_expired("127.0.0.1")
    whole = edge.volume.certificate.read_bytes()
    for said, spoiled in (
        ("the key is not the certificate's", {"key": edge.authority.issue("other")[1].read_bytes()}),
        ("without its end", {"crt": whole[: len(whole) // 2]}),
        ("RSA of 1024 bits", dict(zip(("crt", "key"), pair(rsa.generate_private_key(65537, 1024)), strict=True))),
        ("has expired", {"crt": expired, "key": expired_key}),
    ):
        edge.volume.renew(**spoiled)
        until(functools.partial(edge.has_said, said), 60, said)
        until(lambda: edge.certificate("tidegate_certificate_refused") == 1, 30, said)
        assert edge.serial() == good
    edge.await_serial(edge.volume.renew())
    assert edge.certificate("tidegate_certificate_refused") == 0


def parts(key: bytes) -> tuple[str, str]:
    """Return a line of ``key``, and what is in the middle of it where the whole is written in base64 once more."""
    lines = key.decode().splitlines()
    line = lines[len(lines) // 2].strip()
    assert len(line) > 30
    return line, base64.b64encode(key).decode()[40:80]


@pytest.mark.parametrize("combined", [False, True], ids=["two files", "in both"])
def test_a_key_is_shown_nowhere(edge: Edge, combined: bool) -> None:
    if combined:
        certificate, key = (path.read_bytes() for path in edge.authority.issue("combined"))
        edge.volume.renew(crt=key + certificate + key, key=key)
        edge.await_serial(pem.identity(str(edge.volume.certificate), str(edge.volume.key)).serial)
    as_sent = pem.identity(str(edge.volume.certificate), str(edge.volume.key)).key
    secrets = [part for form in (edge.volume.key.read_bytes(), as_sent) for part in parts(form)]
    _, dump, _ = fetch(f"http://127.0.0.1:{edge.stack.config['envoy']['admin_port']}/config_dump?include_eds")
    assert "listener_certificate" in str(dump)
    _, page, _ = fetch(f"{edge.stack.admin}/xds")
    assert {"type": "Secret", "held": 1, "waits_for_answer": False, "refused": []} in page["clients"][0]["types"]
    kept = "".join(path.read_text() for path in Path(edge.stack.config["control"]["state_dir"]).rglob("*.*"))
    for text in (str(dump), str(page), edge.stack.log(), kept):
        assert not [secret for secret in secrets if secret in text]


def test_the_end_of_what_is_in_force_is_a_metric(edge: Edge) -> None:
    ends = edge.certificate("tidegate_certificate_expiry_timestamp_seconds")
    shown = x509.load_pem_x509_certificate(edge.volume.certificate.read_bytes())
    assert ends <= shown.not_valid_after_utc.timestamp()
    assert ends > 0
