"""The script's words: what it is asked, and what its answers mean."""

import hashlib
import importlib.resources
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from tidegate.scheduling.budget import Cost, Limit, Unit, Window

SCRIPT: Final = importlib.resources.files("tidegate.sharing").joinpath("ledger.lua").read_text("utf-8")
SHA: Final = hashlib.sha1(SCRIPT.encode(), usedforsecurity=False).hexdigest()
"""By what Redis knows the script."""

KINDS: Final[Mapping[Window, str]] = {Window.MINUTE: "m", Window.DAY: "d", Window.IN_FLIGHT: "f"}
UNITS: Final[Mapping[Unit, str]] = {
    Unit.REQUESTS: "r",
    Unit.INPUT_TOKENS: "i",
    Unit.OUTPUT_TOKENS: "o",
    Unit.TOKENS: "t",
}

Operation = Sequence[object]
Named = tuple[str, Limit]
"""An account: its name in Redis, and its limit."""


class ReplyError(Exception):
    """What came is no answer of the script."""


class Reply(NamedTuple):
    """What a call brought.

    Attributes:
        state: ``ok``, ``late`` or ``epoch``; only with ``ok`` anything was done.
        epoch: the epoch that is; empty where that is not said.
        age: its age in seconds.
        now: Redis's time, in seconds since the epoch of clocks.
        replicas: how many it heard of in the last while, this one among them.
        here: how many of them just now.
        results: one for each operation.
    """

    state: str
    epoch: str
    age: float
    now: float
    replicas: int
    here: int
    results: tuple[str, ...]


def parse(answer: object, operations: int) -> Reply:
    """Read what the script returned for so many ``operations``.

    Raises:
        ReplyError: that is something else.
    """
    try:
        if not isinstance(answer, list):
            raise ReplyError(f"a list was expected, not {type(answer).__name__}")
        words = [word.decode() if isinstance(word, bytes) else str(word) for word in answer]
        state, epoch, age, now, replicas, here = words[:6]
        reply = Reply(state, epoch, float(age), float(now), int(replicas), int(here), tuple(words[6:]))
    except ValueError as error:
        raise ReplyError(f"not what the script returns: {error}") from None
    if len(reply.results) != (operations if state == "ok" else 0):
        raise ReplyError(f"{len(reply.results)} results of {operations} operations")
    return reply


def encoded(operations: Iterable[Operation]) -> bytes:
    """Return a batch as the script takes it."""
    return json.dumps(list(operations), separators=(",", ":")).encode()


def _spec(account: Named) -> list[object]:
    name, limit = account
    return [name, KINDS[limit.window], limit.amount, limit.capacity]


def reserve(request: str, cost: Cost, accounts: Iterable[Named]) -> Operation:
    """Take ``cost`` from all ``accounts``, or from none."""
    return ["reserve", request, cost.input_tokens, cost.output_tokens, _with_units(accounts)]


def reserved(result: str) -> tuple[bool, list[float]]:
    """Return whether that was granted, and how much is used of each account now.

    Raises:
        ReplyError: it is something else.
    """
    try:
        granted, *used = result.split(" ")
        return granted == "1", [float(one) for one in used]
    except ValueError:
        raise ReplyError(f"no answer to a reservation: {result!r}") from None


def settle(request: str, input_tokens: int | None, output_tokens: int | None) -> Operation:
    """Correct what a request took by what it used, in tokens; what is unknown was what was expected."""
    return ["settle", request, *(-1 if tokens is None else tokens for tokens in (input_tokens, output_tokens))]


def release(request: str) -> Operation:
    """Give back all that a request took."""
    return ["release", request]


def tell(
    number: int, debts: Iterable[tuple[Named, float]], requests: Iterable[tuple[str, Cost, Sequence[Named]]]
) -> Operation:
    """Tell what was used without Redis, and what requests hold; taken in once for each ``number``."""
    return [
        "tell",
        number,
        [[*_spec(account), used] for account, used in debts],
        [
            [request, cost.input_tokens, cost.output_tokens, _with_units(accounts)]
            for request, cost, accounts in requests
        ],
    ]


def renew(requests: Sequence[str]) -> Operation:
    """Have these leases begin anew. The result names those of which nothing is known."""
    return ["renew", requests]


def look(accounts: Iterable[Named]) -> Operation:
    """Ask how much is used of ``accounts``."""
    return ["look", [_spec(account) for account in accounts]]


def looked(result: str) -> list[float]:
    """Return how much.

    Raises:
        ReplyError: it is something else.
    """
    try:
        return [float(one) for one in result.split()]
    except ValueError:
        raise ReplyError(f"no answer to a look: {result!r}") from None


LEAVE: Final[Operation] = ["leave"]
"""This replica is no more."""


def _with_units(accounts: Iterable[Named]) -> list[list[object]]:
    return [[*_spec(account), UNITS[account[1].unit]] for account in accounts]
