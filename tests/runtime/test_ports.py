"""Ports that are wanted and may be taken."""

import socket

from tests.ports import free_port
from tidegate.config import parse
from tidegate.runtime.ports import Claim, conflicts, of_control_plane


def test_free_ports_are_no_conflict() -> None:
    assert conflicts([Claim("a", "127.0.0.1", free_port()), Claim("b", "0.0.0.0", free_port())]) == []


def test_a_taken_port_is_one_line_that_says_what_it_is_for() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        lines = conflicts([Claim("clients", "127.0.0.1", port), Claim("metrics", "127.0.0.1", free_port())])
    assert lines == [f"port {port} on 127.0.0.1 is taken already; it is needed for clients"]


def test_all_taken_ports_are_one_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as two:
        first, second = one.getsockname()[1], two.getsockname()[1]
        lines = conflicts([Claim("clients", "127.0.0.1", first), Claim("metrics", "127.0.0.1", second)])
    needed = f"{first} on 127.0.0.1 for clients, {second} on 127.0.0.1 for metrics"
    assert lines == [f"ports are taken already; does Tidegate run already? Needed are {needed}"]


def test_every_workers_port_is_wanted() -> None:
    config = parse(
        b"control: {workers: 3, ext_proc_port: 7000}\npools: [{name: a, endpoints: [{address: 10.0.0.1:1}]}]", ""
    )
    claimed = [claim.port for claim in of_control_plane(config) if "ext_proc_port" in claim.purpose]
    assert claimed == [7000, 7001, 7002]


def test_an_address_that_is_not_ours_is_a_conflict_too() -> None:
    (line,) = conflicts([Claim("clients", "192.0.2.1", free_port())])
    assert line.startswith("cannot bind 192.0.2.1:")
    assert "clients" in line
