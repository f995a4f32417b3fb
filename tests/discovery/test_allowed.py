"""Which addresses may be endpoints."""

import pytest

from tidegate.discovery.allowed import allows


@pytest.mark.parametrize(
    "address", ["10.0.0.1:443", "192.168.1.1:80", "8.8.8.8:1", "[fd00::1]:8000", "[2001:4860::1]:1"]
)
def test_addresses_that_other_machines_have_are_allowed(address: str) -> None:
    assert allows(())(address)


@pytest.mark.parametrize(
    "address",
    [
        *("127.0.0.1:80", "127.9.9.9:1", "[::1]:80", "169.254.169.254:80", "[fe80::1]:80", "224.0.0.1:1"),
        *("[ff02::1]:1", "255.255.255.255:1", "240.0.0.1:1", "0.0.0.0:1", "[::]:1"),
        *("[::ffff:127.0.0.1]:1", "[::ffff:169.254.169.254]:1", "[64:ff9b::a9fe:a9fe]:1"),
    ],
)
def test_addresses_of_this_machine_and_of_metadata_services_are_not(address: str) -> None:
    assert not allows(())(address)


def test_named_networks_are_all_that_is_allowed() -> None:
    allowed = allows(("127.0.0.0/8", "fd00::/8"))
    assert allowed("127.0.0.1:1")
    assert allowed("[fd00::7]:1")
    assert not allowed("10.0.0.1:443")
    assert not allowed("[::1]:1")
