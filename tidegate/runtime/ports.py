"""Whether the ports we are about to bind are free, found out before anything is started."""

import errno
import ipaddress
import socket
from collections.abc import Iterable
from typing import NamedTuple

from tidegate.config import Config


class Claim(NamedTuple):
    """A port that something of ours will bind; ``purpose`` names it in messages."""

    purpose: str
    address: str
    port: int


def of_control_plane(config: Config) -> list[Claim]:
    """Return the ports that the control plane binds."""
    admin, control = config.admin, config.control
    return [
        Claim("metrics and health (admin.port)", admin.address, admin.port),
        Claim("discovery (control.xds_port)", control.address, control.xds_port),
        Claim("decisions (control.ext_proc_port)", control.address, control.ext_proc_port),
    ]


def conflicts(claims: Iterable[Claim]) -> list[str]:
    """Return one line for each claim that cannot be bound, empty when all can."""
    return [line for claim in claims if (line := _conflict(claim))]


def _conflict(claim: Claim) -> str | None:
    family = socket.AF_INET6 if ipaddress.ip_address(claim.address).version == 6 else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((claim.address, claim.port))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                return f"port {claim.port} on {claim.address} is taken already; it is needed for {claim.purpose}"
            return f"cannot bind {claim.address}:{claim.port} for {claim.purpose}: {error.strerror}"
    return None
