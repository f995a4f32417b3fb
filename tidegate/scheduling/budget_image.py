"""What is kept of budgets over a restart of the process that counts."""

from typing import NamedTuple


class Used(NamedTuple):
    """How far a limit of a minute or a day was used, to be kept over a restart.

    Attributes:
        scope: whose limit it is.
        limit: its name.
        amount: what was used of it and has not flowed back.
        at: when that was so, in seconds since the epoch.
        day: the day on which it was used, in days since the epoch.
    """

    scope: str
    limit: str
    amount: float
    at: float
    day: int


class Hold(NamedTuple):
    """What a request that was in flight took of such limits.

    Attributes:
        id: the request's.
        limits: from which, by scope and name.
        input_tokens: how much.
        output_tokens: likewise.
        day: when, in days since the epoch.
    """

    id: str
    limits: tuple[tuple[str, str], ...]
    input_tokens: int
    output_tokens: int
    day: int


class BudgetsImage(NamedTuple):
    """What is kept of budgets over a restart. What is in flight begins anew: nobody knows what ended meanwhile."""

    used: tuple[Used, ...] = ()
    held: tuple[Hold, ...] = ()
