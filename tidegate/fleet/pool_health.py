"""How the endpoints of one pool are, taken together: who is ejected, and when nobody is.

* No more than a share of a pool is ejected; whoever was condemned first goes first, the others get very little.
* When more than half of a pool looks bad at once, the fault is probably ours (a broken sensor, a lost network, a bad
  configuration): nobody is ejected, and it is said aloud. Envoy's healthy panic threshold is the same half.
* An endpoint that is new gets nothing until it has shown that it is ready, and counts neither as good nor as bad. Where
  nobody else can serve, it is not waited for.
* Where GPU agents alone condemn many endpoints at once, the agents are doubted rather than the GPUs: a GPU that is
  really lost is soon condemned by the requests that fail there as well.
"""

import itertools
import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tidegate.fleet.condition import Condition
from tidegate.fleet.health import OUT, RULES, Health, HealthRules, HealthStatus

_EPSILON = 1e-9


class Transition(NamedTuple):
    """The member at ``place`` is another than it was ``before``."""

    place: int
    before: Health


class Alarm(NamedTuple):
    """Whether so many look bad that something else is the matter.

    Attributes:
        panic: more than half look bad, and nobody is ejected.
        doubt: agents alone condemn so many that they are not believed.
        bad: how many look bad.
        of: of how many.
    """

    panic: bool = False
    doubt: bool = False
    bad: int = 0
    of: int = 0


AlarmImage = tuple[Alarm, float, float]
"""The alarm of a pool, since when, and when that was last looked at (seconds)."""


class PoolHealth:
    """Judges the endpoints of one pool.

    Attributes:
        rules: where the lines are.
        alarm: whether so many look bad that something else is the matter.
        well: everybody is healthy, so that nobody needs to look.
        look_again: when to judge again though nothing happens, in seconds.
    """

    __slots__ = ("_alarmed_at", "_judged_at", "alarm", "look_again", "rules", "well")

    def __init__(self, rules: HealthRules = RULES) -> None:
        self.rules = rules
        self.alarm = Alarm()
        self.well = True
        self.look_again = math.inf
        self._alarmed_at = self._judged_at = -math.inf

    def is_due(self, now: float) -> bool:
        """Return whether to judge at ``now`` (seconds) though nothing happened: a time is over, or went back."""
        return now >= self.look_again or now < self._judged_at

    def heard(self, one: Condition) -> None:
        """Take note of what a member was told, and did not change by."""
        self.look_again = min(self.look_again, one.look_again)

    def judge(self, members: Sequence[Condition], now: float) -> list[Transition]:
        """Have ``members`` become what follows from all that was said by ``now`` (seconds); return who changed."""
        rules, back = self.rules, now < self._judged_at
        self._judged_at = now
        restless = [back or one.look_again <= now for one in members]
        for one in itertools.compress(members, restless):
            one.look(now)
        awaited = self._awaited(members, now)
        present = [one for one in members if not (one.draining or id(one) in awaited)]
        doubted = self._doubted(present)
        believed = [one for one in present if not (doubted and one.weighed.hearsay)]
        condemned = sum(one.weighed.condemned for one in believed)
        panic = self._panics(condemned, len(present), now)
        # One endpoint that is alone is spared as well, but that says nothing of anything else.
        self.alarm = Alarm(panic and len(present) > 1, doubted, condemned, len(present))
        out = set() if panic else self._out(believed, len(present), now)
        found = []
        for place, one in enumerate(members):
            if not restless[place] and id(one) not in out:
                continue  # nothing is to be said of it
            before, disbelieved = one.health, doubted and one.weighed.hearsay
            if one.become(
                out=id(one) in out,
                awaited=id(one) in awaited,
                panic=panic,
                disbelieved=disbelieved,
                now=now,
                rules=rules,
            ):
                found.append(Transition(place, before))
        _even_out(present)
        self._sum_up(members)
        return found

    def image(self) -> AlarmImage:
        """Return it as plain data."""
        return self.alarm, self._alarmed_at, self._judged_at

    def restore(self, image: AlarmImage, members: Sequence[Condition]) -> None:
        """Become what ``image`` shows, for ``members`` that were restored."""
        self.alarm, self._alarmed_at, self._judged_at = image
        self._sum_up(members)

    def _sum_up(self, members: Sequence[Condition]) -> None:
        self.well = all(one.is_plain and one.health.share >= 1.0 for one in members)
        self.look_again = min((one.look_again for one in members), default=math.inf)

    def _awaited(self, members: Sequence[Condition], now: float) -> set[int]:
        """Return the identities of those that get nothing because they have not been ready yet."""
        here = [one for one in members if not one.draining]
        awaited = [one for one in here if one.is_awaited(now, self.rules)]
        if not awaited:
            return set()
        if not any(one.serves(now, self.rules) for one in here):
            # Nobody is there who could serve meanwhile. Whoever is not known to be unready has to, for good: were the
            # others waited for again as soon as the first of them is ready, it would get everything.
            bad = [one for one in awaited if one.is_unready]
            for one in awaited:
                if not one.is_unready:
                    one.presume()
            awaited = bad if len(bad) < len(awaited) else []
        return {id(one) for one in awaited}

    def _doubted(self, present: Sequence[Condition]) -> bool:
        most = max(1, math.floor(self.rules.max_ejected_on_hearsay * len(present) + _EPSILON))
        return sum(one.weighed.hearsay for one in present) > most

    def _panics(self, condemned: int, of: int, now: float) -> bool:
        if condemned > self.rules.panic * of + _EPSILON:
            if not self.alarm.panic:
                self._alarmed_at = now
            return True
        # Not at once: whoever stands at the border would be ejected and let off again and again.
        self._alarmed_at = min(self._alarmed_at, now)
        return self.alarm.panic and condemned > 0 and now - self._alarmed_at < self.rules.calm_seconds

    def _out(self, members: Iterable[Condition], of: int, now: float) -> set[int]:
        """Return the identities of those to be ejected: those who are already, then those condemned for longest."""
        wanted = [one for one in members if one.weighed.condemned or one.is_held(now, self.rules)]
        wanted.sort(key=_first_condemned)
        return {id(one) for one in wanted[: math.floor(self.rules.max_ejected * of + _EPSILON)]}


def _first_condemned(one: Condition) -> tuple[bool, bool, float]:
    ejected = one.health.status is HealthStatus.EJECTED
    return not ejected, not one.weighed.condemned, one.health.since if ejected else one.condemned_since


def _even_out(present: Sequence[Condition]) -> None:
    """Scale shares so that the largest is a whole one: where all get less, nobody does."""
    inside = [one for one in present if one.health.status not in OUT]
    most = max((one.health.share for one in inside), default=1.0)
    if 0.0 < most < 1.0:
        for one in inside:
            one.health = one.health._replace(share=min(1.0, one.health.share / most))
