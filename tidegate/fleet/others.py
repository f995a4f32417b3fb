"""What other replicas of this control plane have in flight, as they told: load that is not ours, and known at once.

An engine's report shows the load of others too, late, and all others' at once. So the two are never added up: the
larger of them counts, and who hears nothing of the replicas goes by the reports, as if there were no replicas.

What replicas say is there to be known before an engine shows it, and a short while later it must: what was said all the
time for ``CONFIRMED_SECONDS`` before a report, and is not in it, is not there. Whoever says so is taken to be wrong by
as much for as long as it goes on; what comes and goes on top of it counts as before.
"""

from typing import Final, NamedTuple

from tidegate.fleet.load import EngineReport
from tidegate.fleet.work import Load

CONFIRMED_SECONDS: Final = 2.0
"""After so long an engine shows what it has: its figures are of its last step, or some steps older."""

ON_THE_WAY = 4
ON_THE_WAY_SHARE = 0.25
"""Requests, and what share of those that an engine shows, may be on their way to it or from it all the time."""

MOST_TIMES_MEAN: Final = 16.0
"""How many times a pool's mean request those of others may be, all of one endpoint together."""


class Others(NamedTuple):
    """What the other replicas have in flight at one endpoint, all of them together.

    Attributes:
        requests: requests.
        prompt_tokens: tokens of their prompts.
        tokens: tokens that they may come to hold, prompts and answers.
        backlog: prompt tokens that are not prefilled yet, as far as the replicas can reckon.
    """

    requests: int
    prompt_tokens: int
    tokens: int
    backlog: int

    @property
    def context(self) -> float:
        """Tokens of context that they have between them: half of their answers is there on average."""
        return (self.prompt_tokens + self.tokens) / 2


class Said(NamedTuple):
    """What was said once, of that which is compared with reports.

    Attributes:
        at: when, in seconds.
        requests: requests.
        backlog: prompt tokens that are not prefilled yet.
    """

    at: float
    requests: int
    backlog: int


class Heard(NamedTuple):
    """What was told, and for how long it is believed.

    Attributes:
        told: what was told.
        at: when, in seconds.
        until: until when it counts; after that nothing is known, which is not the same as nothing being there.
        said: what was told in the last ``CONFIRMED_SECONDS``, the oldest first, which may be older.
        false_requests: as many of the requests that were told are not there, by the last report.
        false_backlog: likewise of the prompt tokens.
    """

    told: Others
    at: float
    until: float
    said: tuple[Said, ...] = ()
    false_requests: int = 0
    false_backlog: int = 0

    @classmethod
    def after(cls, before: "Heard | None", told: Others, now: float, seconds: float) -> "Heard":
        """Return what is ``told`` at ``now`` and believed for so many ``seconds``; ``before`` was the last."""
        one = Said(now, told.requests, told.backlog)
        if before is None or now > before.until:
            return cls(told, now, now + seconds, (one,))
        said = [*before.said, one]
        while len(said) > 1 and said[1].at <= now - CONFIRMED_SECONDS:
            del said[0]
        # By as much as less is said now than ever was, it is not wrong any more.
        less_requests = max(0, min(was.requests for was in before.said) - told.requests)
        less_backlog = max(0, min(was.backlog for was in before.said) - told.backlog)
        return cls(
            *(told, now, now + seconds, tuple(said)),
            max(0, before.false_requests - less_requests),
            max(0, before.false_backlog - less_backlog),
        )

    def checked(self, report: EngineReport, foreign: float | None, own: int, now: float) -> "Heard":
        """Return it as it is by ``report`` of ``now``, which shows so many ``foreign`` requests besides our ``own``.

        A report that does not even show our own says nothing of others.
        """
        running, waiting = report.running, report.waiting
        if now > self.until or self.said[0].at > now - CONFIRMED_SECONDS:
            return self._replace(false_requests=0, false_backlog=0)
        if foreign is None or running is None or waiting is None or running + waiting + ON_THE_WAY < own:
            return self._replace(false_requests=0, false_backlog=0)
        shown = foreign * (1 + ON_THE_WAY_SHARE) + ON_THE_WAY
        requests = max(0, min(was.requests for was in self.said) - round(shown))
        # Where nothing waits, every prompt of then is being worked on.
        backlog = 0 if waiting else min(was.backlog for was in self.said)
        return self._replace(false_requests=requests, false_backlog=backlog)

    def believed(self, each: float) -> Others:
        """Return what of it is believed, where a request is of ``each`` so many tokens on average."""
        told, false = self.told, self.false_requests
        if false:
            share = (told.requests - false) / told.requests
            told = Others(told.requests - false, *(round(figure * share) for figure in told[1:]))
        most = round(told.requests * each * MOST_TIMES_MEAN)
        if told.tokens > most or told.prompt_tokens > most or told.backlog > most or self.false_backlog:
            backlog = min(told.backlog, most, self.told.backlog - self.false_backlog)
            told = Others(told.requests, min(told.prompt_tokens, most), min(told.tokens, most), backlog)
        return told

    def load(self, own: Load, all_told: Load, each: float) -> Load:
        """Return the load where ``own`` is ours, and ``all_told`` is it with that which reports show of others.

        A request is of ``each`` so many tokens on average.
        """
        others = self.believed(each)
        return Load(
            max(all_told.requests, own.requests + others.requests), max(all_told.context, own.context + others.context)
        )


def own_backlog(reckoned: float, prompt_tokens: int) -> int:
    """Return the backlog to be told to others, in tokens: of what is ``reckoned``, no more than is in our own prompts.

    What is reckoned is set right by how many requests wait in the engine, and they may be the others' own.
    """
    return round(min(reckoned, prompt_tokens))
