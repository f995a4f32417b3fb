"""What ``tidegate up`` prints once everything runs: where it listens, and what to paste."""

import asyncio
import contextlib
import json
import shlex
from pathlib import Path

import aiohttp
import msgspec

from tidegate.config import Config
from tidegate.config_tls import ListenerTls
from tidegate.runtime import demo
from tidegate.runtime.local_stack import url

ASK_SECONDS = 1.0
"""How long the engines may take, all together, to say what they serve."""

MAX_ENDPOINTS = 20
"""Endpoints that are listed; of more, only the number is said."""

PLACEHOLDER = "MODEL"


class _Model(msgspec.Struct):
    id: str


class _Models(msgspec.Struct):
    data: list[_Model]


async def model(config: Config) -> str:
    """Return the name of a model to try: one that ``config`` names, else what an engine says, else ``PLACEHOLDER``."""
    for pool in config.pools:
        for name in pool.models:
            if "*" not in name:
                return name
    addresses = [endpoint.address for pool in config.pools for endpoint in pool.endpoints]
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(ASK_SECONDS), aiohttp.ClientSession() as session:
            for address in addresses:
                if served := await _served(session, address):
                    return served
    return PLACEHOLDER


async def _served(session: aiohttp.ClientSession, address: str) -> str | None:
    """Return the first model that the engine at ``address`` lists."""
    try:
        async with session.get(f"http://{address}/v1/models") as answer:
            served = msgspec.json.decode(await answer.content.read(65_536), type=_Models).data
    except (aiohttp.ClientError, msgspec.DecodeError):
        return None
    return served[0].id if served else None


def text(config: Config, config_file: Path, model: str, *, simulated: bool) -> str:
    """Return where everything listens and three commands to paste, which ask for ``model``."""
    _, listener = config.listener_here
    clients = url(listener.address, listener.port)
    if listener.tls is not None:
        clients = clients.replace("http://", "https://", 1)
    admin = url(config.admin.address, config.admin.port)
    envoy = url(config.envoy.admin_address, config.envoy.admin_port)
    control = config.control
    discovery = url(control.address, control.xds_port).removeprefix("http://")
    decisions = ", ".join(url(control.address, port).removeprefix("http://") for port in control.ports)
    with_log = (", access log", "") if control.access_log_port == control.xds_port else ("", ", access log")
    ask = f"{_trust(listener.tls)}{clients}/v1/chat/completions -H 'content-type: application/json' -d"
    body = {"model": model, "max_tokens": 32, "messages": [{"role": "user", "content": "hello"}]}
    missing = [f"the name of a model in place of {PLACEHOLDER}"] if model == PLACEHOLDER else []
    if listener.tls is not None:
        missing.append(f"the authority of {listener.tls.certificate} in place of CA.pem")
    try_them = f"Try, with {' and '.join(missing)}:" if missing else "Try:"
    return "\n".join(
        [
            "",
            "Tidegate is up. Ctrl-C stops everything.",
            f"  clients      {clients}/v1",
            f"  metrics      {admin}/metrics   (also /healthz, /readyz, /status)",
            f"  envoy admin  {envoy}",
            f"  gRPC         {discovery} (discovery{with_log[0]}), {decisions} (decisions{with_log[1]})",
            f"  config       {config_file}   (watched: a change is taken over)",
            "  endpoints",
            *_endpoints(config, simulated=simulated),
            "",
            try_them,
            f"  curl -s {ask} {_quoted(body)}",
            f"  curl -sN {ask} {_quoted({**body, 'stream': True})}",
            f"  curl -s {admin}/metrics | grep tidegate_inflight",
            "",
        ]
    )


def _trust(tls: ListenerTls | None) -> str:
    """Return the options by which curl trusts the listener, and shows a certificate where one is required."""
    if tls is None:
        return ""
    required = tls.client_ca is not None and tls.client_certificate == "required"
    return "--cacert CA.pem " + ("--cert CLIENT.pem --key CLIENT.key " if required else "")


def _endpoints(config: Config, *, simulated: bool) -> list[str]:
    profiles = {f"127.0.0.1:{engine.port}": engine.profile for engine in demo.ENGINES} if simulated else {}
    lines = []
    for pool in config.pools:
        for endpoint in pool.endpoints:
            profile = profiles.get(endpoint.address)
            lines.append(f"    {pool.name}: {endpoint.address}" + (f"   (simulated {profile})" if profile else ""))
        if pool.discovery is not None:
            lines.append(f"    {pool.name}: those that are found ({pool.discovery.kind})")
    more = len(lines) - MAX_ENDPOINTS
    return [*lines[:MAX_ENDPOINTS], f"    and {more} more"] if more > 0 else lines


def _quoted(body: object) -> str:
    """Return ``body`` as JSON that a shell takes as one word, whatever it holds."""
    return shlex.quote(json.dumps(body, separators=(",", ":")))
