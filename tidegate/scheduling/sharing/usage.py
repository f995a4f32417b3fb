"""What the use of a limit means: what is left of it, and when there will be more.

Here a limit is known by how much of it is *used*, and not by what is left: what is used stays used when the limit is
another, and the uses of several replicas can be added. ``parts`` says by how many a limit is divided; of each part a
minute gives back as much less. ``used`` may exceed what may be used: that is owed.
"""

import math
from typing import Final

from tidegate.scheduling.budget import DAY_SECONDS, Exceeded, Left, Limit, Window

MINUTE_SECONDS: Final = 60.0


def capacity(limit: Limit, parts: int = 1) -> int:
    """Return the most of one of ``parts`` parts that may be used at once; 1 at least."""
    return max(1, limit.capacity // parts)


def after(limit: Limit, used: float, since: float, now: float, parts: int = 1) -> float:
    """Return what of ``used`` at ``since`` is used at ``now``. A clock that goes back gives nothing back."""
    if limit.window is Window.MINUTE and now > since:
        return max(0.0, used - (now - since) * limit.amount / MINUTE_SECONDS / parts)
    if limit.window is Window.DAY and (days := math.floor(now / DAY_SECONDS) - math.floor(since / DAY_SECONDS)) > 0:
        # What was used beyond a day's limit is owed on the days after it.
        return max(0.0, used - days * capacity(limit, parts))
    return used


def fits(limit: Limit, used: float, needed: int, parts: int = 1) -> bool:
    """Return whether ``needed`` more may be used.

    What is more than a whole part, and no more than the limit, fits a part of which nothing is used: otherwise it would
    never, for as long as limits are divided.
    """
    if needed == 0 or used + needed <= capacity(limit, parts):
        return True
    return parts > 1 and used <= 0 and needed <= limit.capacity


def wait(limit: Limit, used: float, needed: int, now: float, parts: int = 1) -> float:
    """Return how many seconds until ``needed`` fits, which it does not; see ``Exceeded.wait_seconds``."""
    if needed > limit.capacity:
        return math.inf
    if limit.window is Window.IN_FLIGHT:
        return 0.0
    most = capacity(limit, parts)
    beyond = max(0.0, used - max(0, most - needed))
    if limit.window is Window.MINUTE:
        return beyond * MINUTE_SECONDS * parts / limit.amount
    days = max(1, math.ceil(beyond / most))
    return (math.floor(now / DAY_SECONDS) + days) * DAY_SECONDS - now


def exceeded(scope: str, limit: Limit, used: float, needed: int, now: float, parts: int = 1) -> Exceeded | None:
    """Return why ``needed`` more may not be used; ``None`` if it may."""
    if fits(limit, used, needed, parts):
        return None
    return Exceeded(scope, limit, needed, wait(limit, used, needed, now, parts))


def left(limit: Limit, used: float, now: float, parts: int = 1) -> Left:
    """Return what is left."""
    whole = max(0, math.floor(capacity(limit, parts) - used))
    if limit.window is Window.IN_FLIGHT or used <= 0:
        return Left(limit, whole, 0.0)
    if limit.window is Window.MINUTE:
        return Left(limit, whole, used * MINUTE_SECONDS * parts / limit.amount)
    return Left(limit, whole, (math.floor(now / DAY_SECONDS) + 1) * DAY_SECONDS - now)
