"""Addresses: equal ones are equal text."""

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.addresses import ip, ip_and_port, is_address, is_loopback, is_unspecified, joined, overlap, split


@pytest.mark.parametrize(
    ("text", "spelling"),
    [
        ("10.0.0.7:8000", "10.0.0.7:8000"),
        ("10.0.0.7:08000", "10.0.0.7:8000"),
        ("[fd00::7]:8000", "[fd00::7]:8000"),
        ("[FD00:0:0:0::7]:8000", "[fd00::7]:8000"),
        ("[fd00:0000:0000:0000:0000:0000:0000:0007]:8000", "[fd00::7]:8000"),
        ("[::ffff:10.0.0.7]:8000", "10.0.0.7:8000"),
        ("[::1]:1", "[::1]:1"),
        ("127.0.0.1:65535", "127.0.0.1:65535"),
    ],
)
def test_each_address_has_one_spelling(text: str, spelling: str) -> None:
    assert ip_and_port(text) == spelling
    assert ip_and_port(spelling) == spelling


@pytest.mark.parametrize(
    "text",
    [
        "",
        "8000",
        ":8000",
        "localhost:8000",
        "engine.example:8000",
        "10.0.0.7",
        "10.0.0.7:",
        "10.0.0.7:0",
        "10.0.0.7:65536",
        "10.0.0.7:-1",
        "10.0.0.7:８０",  # noqa: RUF001  digits, but not ASCII ones
        "10.0.0.7:80 ",
        "10.0.0.256:80",
        "010.0.0.7:80",
        "10.0.0:80",
        "fd00::7:8000",
        "[fd00::7]",
        "[fd00::7]:",
        "[10.0.0.7]:80",
        "[]:80",
        "[fe80::1%eth0]:80",
        "0.0.0.0:80",
        "[::]:80",
        "http://10.0.0.7:80",
        "10.0.0.7:80/v1",
    ],
)
def test_what_one_cannot_connect_to_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        ip_and_port(text)


@pytest.mark.parametrize("text", ["", "localhost", "1", "10.0.0.7:80", "[::1]", "fe80::1%eth0"])
def test_what_is_no_ip_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        ip(text)


@given(st.ip_addresses(), st.integers(1, 65535))
def test_an_address_taken_apart_and_joined_is_the_same(address: object, port: int) -> None:
    place = joined(ip(str(address)), port)
    assert split(place) == (ip(str(address)), port)


@given(st.ip_addresses(v=6), st.integers(1, 65535))
def test_every_spelling_of_an_address_gives_the_same_text(address: ipaddress.IPv6Address, port: int) -> None:
    if not is_unspecified(ip(str(address))):
        assert ip_and_port(f"[{address}]:{port}") == ip_and_port(f"[{address.exploded.upper()}]:{port}")


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("127.0.0.1", "127.0.0.1", True),
        ("127.0.0.1", "127.0.0.2", False),
        ("0.0.0.0", "127.0.0.1", True),
        ("10.0.0.1", "0.0.0.0", True),
        ("::", "::1", True),
        ("::", "127.0.0.1", False),
        ("0.0.0.0", "::1", False),
    ],
)
def test_an_address_that_means_all_overlaps_with_those_of_its_kind(one: str, other: str, expected: bool) -> None:
    assert overlap(one, other) == overlap(other, one) == expected


def test_loopback_is_told_from_the_rest() -> None:
    assert is_loopback("127.0.0.9")
    assert is_loopback("::1")
    assert not is_loopback("10.0.0.1")


@pytest.mark.parametrize(("text", "address"), [("10.0.0.1", True), ("fd00::1", True), ("tidegate", False), ("", False)])
def test_an_address_is_told_from_a_name(text: str, address: bool) -> None:
    assert is_address(text) is address
