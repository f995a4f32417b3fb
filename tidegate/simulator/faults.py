"""What can be wrong with a simulated engine, as ``POST /fault`` sets it."""

from typing import Annotated

import msgspec


class FaultError(ValueError):
    """A fault was asked for that there is not; one line that says what was expected."""


class Faults(msgspec.Struct, frozen=True, kw_only=True):
    """The faults of one engine at one moment.

    Attributes:
        fail_rate: share of inference requests answered with 500, 0 to 1.
        slow: by how much every step takes longer.
        hang: everything but ``/fault`` is accepted and never answered: a frontend that is stuck.
        unhealthy: ``/health`` and ``/ping`` answer 503.
        freeze: no step is done and the gauges stay as they are, while ``/health`` goes on: a core that is stuck.
        error_after: a stream ends with an event that says so after as many steps of its tokens; 0 for never.
        break_after: a stream's connection breaks off after as many steps; 0 for never.
        comments: streams bring a comment a second while they bring nothing else, as with vLLM's
            ``--sse-keep-alive-interval``; with ``freeze``, a frontend that goes on without its core.
        slow_health: seconds that ``/health`` and ``/ping`` take: a frontend that is busy.
        slow_metrics: ``/metrics`` comes a byte a second.
        unloaded: no model is listed, nor served: an engine that still loads it.
        poison: the process dies of an inference request that holds this text; empty for none.
        oom_tokens: prompts of more tokens are answered with 500, out of memory; 0 for none.
    """

    fail_rate: float = 0.0
    slow: float = 1.0
    hang: bool = False
    unhealthy: bool = False
    freeze: bool = False
    error_after: int = 0
    break_after: int = 0
    comments: bool = False
    slow_health: float = 0.0
    slow_metrics: bool = False
    unloaded: bool = False
    poison: str = ""
    oom_tokens: int = 0

    def describe(self) -> str:
        """Return the faults that are set, in one line."""
        set_ones = {
            name: value for name, value in msgspec.structs.asdict(self).items() if value != getattr(SOUND, name)
        }
        return " ".join(f"{name}={value}" for name, value in set_ones.items()) or "none"


SOUND = Faults()
"""No faults."""


class _Change(msgspec.Struct, forbid_unknown_fields=True):
    """The body of ``POST /fault``; what is not in it stays as it is."""

    fail_rate: Annotated[float, msgspec.Meta(ge=0, le=1)] | msgspec.UnsetType = msgspec.UNSET
    slow: Annotated[float, msgspec.Meta(gt=0, le=1000)] | msgspec.UnsetType = msgspec.UNSET
    hang: bool | msgspec.UnsetType = msgspec.UNSET
    unhealthy: bool | msgspec.UnsetType = msgspec.UNSET
    freeze: bool | msgspec.UnsetType = msgspec.UNSET
    error_after: Annotated[int, msgspec.Meta(ge=0)] | msgspec.UnsetType = msgspec.UNSET
    break_after: Annotated[int, msgspec.Meta(ge=0)] | msgspec.UnsetType = msgspec.UNSET
    comments: bool | msgspec.UnsetType = msgspec.UNSET
    slow_health: Annotated[float, msgspec.Meta(ge=0, le=1000)] | msgspec.UnsetType = msgspec.UNSET
    slow_metrics: bool | msgspec.UnsetType = msgspec.UNSET
    unloaded: bool | msgspec.UnsetType = msgspec.UNSET
    poison: Annotated[str, msgspec.Meta(max_length=1000)] | msgspec.UnsetType = msgspec.UNSET
    oom_tokens: Annotated[int, msgspec.Meta(ge=0)] | msgspec.UnsetType = msgspec.UNSET
    reset: bool = False
    die: bool = False


def change(faults: Faults, body: bytes) -> tuple[Faults, bool]:
    """Apply the JSON ``body`` of ``POST /fault``: the keys of ``Faults``, ``reset`` to clear all first, and ``die``.

    Returns:
        The faults from now on, and whether the process is to exit at once.

    Raises:
        FaultError: the body is not understood.
    """
    try:
        wanted = msgspec.json.decode(body, type=_Change)
    except msgspec.DecodeError as error:
        raise FaultError(
            f"{error}; expected a JSON object with any of {', '.join(_Change.__struct_fields__)}"
        ) from None
    given = {name: getattr(wanted, name) for name in Faults.__struct_fields__}
    given = {name: value for name, value in given.items() if value is not msgspec.UNSET}
    return msgspec.structs.replace(SOUND if wanted.reset else faults, **given), wanted.die
