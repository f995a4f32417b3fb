"""The section of a pool that says where its engines publish what they cache."""

import importlib.util
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, Protocol

from pydantic import Field, ValidationInfo, model_validator

from tidegate.config_values import CHECKED, Port, Section
from tidegate.faults import fault

KV_EVENT_ENGINES: Final = ("vllm", "sglang")
"""The engines that publish KV events in this format."""


class KvEvents(Section):
    """Where a pool's engines publish what they cache, over ZMQ."""

    port: Port = Field(5557, description="The port at each endpoint's address that events are published on.")
    replay_port: Port | None = Field(
        None,
        description="The port there that repeats events which were missed; without it, an engine of which one was "
        "missed counts as empty.",
    )
    topic: str = Field("", max_length=256, description="What a topic begins with that is listened to; empty: all.")
    block_size: int = Field(
        16,
        ge=1,
        le=4096,
        description="Tokens of a block: the engine's `--block-size`. Events of other sizes are no use.",
    )

    @model_validator(mode="after")
    def _readable(self, info: ValidationInfo) -> "KvEvents":
        if info.context != CHECKED and not all(map(importlib.util.find_spec, ("zmq", "jinja2"))):
            raise fault("the packages pyzmq and jinja2, which it needs, are missing; install tidegate[kv-events]")
        return self


class Publishing(Protocol):
    """An endpoint that may have ports of its own for KV events."""

    @property
    def kv_events_port(self) -> int | None:
        """Where it publishes them."""
        ...

    @property
    def kv_events_replay_port(self) -> int | None:
        """Where it repeats them."""
        ...


def untold(pools: Iterable[tuple[KvEvents | None, str, Sequence[Publishing]]]) -> Iterator[str]:
    """Return a line for each fault in pools, given as their section, their engine and their endpoints."""
    for at, (section, engine, endpoints) in enumerate(pools):
        if section is not None and engine not in KV_EVENT_ENGINES:
            known = " or ".join(KV_EVENT_ENGINES)
            yield f"pools[{at}].kv_events: expected an engine that publishes them, {known}, not {engine}"
        for number, one in enumerate(endpoints):
            if section is None and (one.kv_events_port, one.kv_events_replay_port) != (None, None):
                yield f"pools[{at}].endpoints[{number}]: a port of KV events; expected kv_events in its pool too"
