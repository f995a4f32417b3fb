"""One engine, as the configuration and the files that are followed write it."""

from pydantic import Field

from tidegate.choice_config import Role
from tidegate.config_agents import GpuUuids, Node
from tidegate.config_values import Gpu, IpAndPort, Model, Port, Section


class Endpoint(Section):
    """One engine."""

    address: IpAndPort = Field(description="Its ip:port; IPv6 in brackets.")
    weight: int = Field(1, ge=1, le=1000, description="Relative capacity.")
    role: Role = Field("both", description="What it does where prefill and decode are taken apart.")
    models: tuple[Model, ...] = Field((), description="The model names it serves, of its pool's; empty: all of them.")
    max_running: int | None = Field(None, ge=1, le=100_000, description="The most requests in its batch, if known.")
    gpu: Gpu | None = Field(
        None,
        description="What it runs on: how fast `predicted_latency` takes it for until its requests have shown it.",
    )
    node: Node | None = Field(
        None,
        description="The GPU host that it runs on, by the name that its agent reports as; by default the one that is "
        "named by its IP address.",
    )
    gpus: GpuUuids = Field((), description="The UUIDs of the GPUs there that it runs on; empty: all of the node's.")
    drain: bool = Field(default=False, description="Whether it gets nothing new; what it has may finish.")
    kv_events_port: Port | None = Field(
        None, description="Where it publishes KV events, where that differs from its pool's `kv_events.port`."
    )
    kv_events_replay_port: Port | None = Field(
        None, description="Where it repeats them, where that differs from its pool's `kv_events.replay_port`."
    )
