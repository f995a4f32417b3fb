"""Ports that are wanted and may be taken."""

import socket

from tests.ports import free_port
from tidegate.runtime.ports import Claim, conflicts


def test_free_ports_are_no_conflict() -> None:
    assert conflicts([Claim("a", "127.0.0.1", free_port()), Claim("b", "0.0.0.0", free_port())]) == []


def test_a_taken_port_is_one_line_that_says_what_it_is_for() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        lines = conflicts([Claim("clients", "127.0.0.1", port), Claim("metrics", "127.0.0.1", free_port())])
    assert lines == [f"port {port} on 127.0.0.1 is taken already; it is needed for clients"]


def test_an_address_that_is_not_ours_is_a_conflict_too() -> None:
    (line,) = conflicts([Claim("clients", "192.0.2.1", free_port())])
    assert line.startswith("cannot bind 192.0.2.1:")
    assert "clients" in line
