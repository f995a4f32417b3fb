"""The configuration's section ``agents``: where GPU agents report, and what of it is believed."""

import re
from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from tidegate import addresses
from tidegate.config_tls import ServerTls
from tidegate.config_values import AbsolutePath, Ip, Port, Section
from tidegate.faults import fault, shown

NODE = r"^[A-Za-z0-9][A-Za-z0-9._:-]{0,252}$"
GPU = r"^[A-Za-z0-9][A-Za-z0-9._/:-]{0,127}$"


def _node(name: str) -> str:
    if not re.fullmatch(NODE, name, re.ASCII):
        raise fault(f"expected 1 to 253 letters, digits, dots, dashes, colons and underscores, not {shown(name)}")
    return name


def _gpu(uuid: str) -> str:
    if not re.fullmatch(GPU, uuid, re.ASCII):
        raise fault(f"expected a GPU's UUID, such as nvidia-smi -L shows, not {shown(uuid)}")
    return uuid


def _each_once(uuids: tuple[str, ...]) -> tuple[str, ...]:
    twice = [uuid for at, uuid in enumerate(uuids) if uuid in uuids[:at]]
    if twice:
        raise fault(f"expected each GPU once, not {shown(twice[0])} again")
    return uuids


Node = Annotated[str, AfterValidator(_node), Field(json_schema_extra={"pattern": NODE})]
GpuUuid = Annotated[str, AfterValidator(_gpu), Field(json_schema_extra={"pattern": GPU})]
GpuUuids = Annotated[tuple[GpuUuid, ...], Field(max_length=64), AfterValidator(_each_once)]


class AgentsTls(ServerTls):
    """TLS with certificates on both sides: an agent's names the node that it may speak for, and no other."""

    client_ca: AbsolutePath = Field(
        description="Absolute path of the authorities (PEM) that may have signed agents' certificates; an agent "
        "without one is refused."
    )


class Agents(Section):
    """Where GPU agents (`tidegate agent`) report, over gRPC. Without it nobody listens for them."""

    address: Ip = Field("127.0.0.1", description="IP address to bind.")
    port: Port = Field(18100, description="Port to bind.")
    tls: AgentsTls | None = Field(None, description="TLS with certificates on both sides; without it, none.")
    insecure: bool = Field(
        default=False,
        description="Whether agents may report without TLS from elsewhere than this machine: whoever reaches the port "
        "can then speak for any node.",
    )
    max_nodes: int = Field(
        1000, ge=1, le=10_000, description="The most nodes that are heard; bounds what is kept and exported of them."
    )


class Vram(Section):
    """How the VRAM that GPU agents report bounds a request."""

    judged: Literal["auto", "growth", "headroom", "ignore"] = Field(
        "auto",
        description="By what is free (`headroom`); only where more is in use than when the engine had been loaded, and "
        "little is left (`growth`); or not at all (`ignore`). `auto`: `growth` where the engine sets its KV cache "
        "aside when it starts, which all but `none` do, else `headroom`.",
    )
    kv_bytes_per_token: int | None = Field(
        None,
        ge=256,
        le=67_108_864,
        description="Bytes that the KV cache of one token takes. By default what a known model takes, by its name in "
        "`models`, else 131072, as for Llama 3.1 8B.",
    )


def unguarded(agents: Agents | None) -> Iterator[str]:
    """Find a port that anybody could report to."""
    if agents is not None and agents.tls is None and not agents.insecure and not addresses.is_loopback(agents.address):
        yield f"agents.tls: expected certificates, or insecure: true, where agents report to {agents.address}"
