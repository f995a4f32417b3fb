"""Whether anybody is there: asked of an engine that has requests and of which nothing is heard.

A process that is frozen altogether (SIGSTOP, a machine that hangs) counts nothing, ends nothing and answers nothing;
but silence alone is not death: a page of metrics may be slow, and a long prompt may be at work. So it is asked for a
page that costs nothing, again and again until that is clear. Any answer is one, an error too. Whoever was silent to all
that was asked, while no request was served there and nothing was counted, is not there.

While all is well nothing is asked. So this is on without being chosen, where a check that always asks is not.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from tidegate.config_checks import Check
from tidegate.engines.check import PASSED, Finding, Found, Standing
from tidegate.engines.outcome import Outcome

SILENT_SECONDS: Final = 5.0
"""How long nothing may be heard, besides the time that the prompts there take. The metrics were silent for as long."""

MISSES: Final = 3
"""Questions in a row that are not answered, as with ``http``."""

PROBE: Final = Check(name="progress", interval_seconds=3.25, timeout_seconds=3.0)
"""A question may take 3 s, as an engine may while it is busy. Three of them and the silence before are 15 s."""

PAUSE_SECONDS: Final = PROBE.interval - PROBE.timeout
"""Between two questions that were not answered."""

AGAIN_SECONDS: Final = 10.0
"""How soon it is asked again after it was there: engines that never say what they do are silent over a long answer."""

NOTHING_HEARD: Final = Found(Finding.UNKNOWN, "nothing_heard", "it has requests, and nothing is heard of it")

_SILENCE: Final = frozenset({Outcome.TIMEOUT.value, Outcome.UNREACHABLE.value})


async def inquire(
    ask: Callable[[], Awaitable[Found]],
    standing: Callable[[], Standing],
    say: Callable[[Found], None],
    clock: Callable[[], float],
) -> None:
    """Ask until it answers, or something else is heard of it.

    Args:
        ask: asks once, within its deadline.
        standing: says what is known of it without asking.
        say: takes that it is not there, again and again, and that it is there again.
        clock: seconds, monotonic.
    """
    began, misses = clock(), 0
    while is_silence(await ask()) and standing().since_moved >= clock() - began:
        misses += 1
        if misses >= MISSES:
            say(Found(Finding.FAILED, "no_answer", "nothing is heard of it, and it answers nothing"))
        await asyncio.sleep(PAUSE_SECONDS)
    if misses >= MISSES:
        say(PASSED)


def is_silence(found: Found) -> bool:
    """Return whether nobody answered: no connection came about, or no answer in time."""
    return found.reason in _SILENCE
