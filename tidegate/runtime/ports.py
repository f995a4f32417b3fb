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
    """Return the ports that the control plane of ``config`` binds."""
    control, agents = config.control, config.agents
    reports = [] if agents is None else [Claim("GPU agents (agents.port)", agents.address, agents.port)]
    return [
        Claim("metrics and health (admin.port)", config.admin.address, config.admin.port),
        Claim("discovery (control.xds_port)", control.address, control.xds_port),
        *(Claim("decisions (control.ext_proc_port)", control.address, port) for port in control.ports),
        *reports,
    ]


def of_picker(config: Config) -> list[Claim]:
    """Return the ports that the endpoint picker of ``config`` binds."""
    control, health = config.control, config.picker.health_port
    claims = [
        Claim("metrics and health (admin.port)", config.admin.address, config.admin.port),
        Claim("decisions (control.ext_proc_port)", control.address, control.ext_proc_port),
    ]
    if health is not None:
        claims.append(Claim("health checks (picker.health_port)", control.address, health))
    return claims


def conflicts(claims: Iterable[Claim]) -> list[str]:
    """Return what keeps ``claims`` from being bound, nothing when all can be: a line for each reason."""
    taken, lines = [], []
    for claim in claims:
        error = _error(claim)
        if error is None:
            continue
        if error.errno == errno.EADDRINUSE:
            taken.append(claim)
        else:
            lines.append(f"cannot bind {claim.address}:{claim.port} for {claim.purpose}: {error.strerror}")
    if len(taken) == 1:
        (claim,) = taken
        lines.append(f"port {claim.port} on {claim.address} is taken already; it is needed for {claim.purpose}")
    elif taken:
        named = ", ".join(f"{claim.port} on {claim.address} for {claim.purpose}" for claim in taken)
        lines.append(f"ports are taken already; does Tidegate run already? Needed are {named}")
    return lines


def _error(claim: Claim) -> OSError | None:
    family = socket.AF_INET6 if ipaddress.ip_address(claim.address).version == 6 else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((claim.address, claim.port))
        except OSError as error:
            return error
    return None
