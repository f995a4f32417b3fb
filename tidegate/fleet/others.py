"""What other replicas of this control plane have in flight, as they told: load that is not ours, and known at once.

An engine's report shows the load of others too, late, and all others' at once. So the two are never added up: the
larger of them counts, and who hears nothing of the replicas goes by the reports, as if there were no replicas.
"""

from typing import NamedTuple

from tidegate.fleet.work import Load


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


class Heard(NamedTuple):
    """What was told, and for how long it is believed.

    Attributes:
        others: what was told.
        at: when, in seconds.
        until: until when it counts; after that nothing is known, which is not the same as nothing being there.
    """

    others: Others
    at: float
    until: float

    def load(self, own: Load, all_told: Load) -> Load:
        """Return the load where ``own`` is ours, and ``all_told`` is it with that which reports show of others."""
        others = self.others
        return Load(
            max(all_told.requests, own.requests + others.requests), max(all_told.context, own.context + others.context)
        )


def own_backlog(reckoned: float, prompt_tokens: int) -> int:
    """Return the backlog to be told to others, in tokens: of what is ``reckoned``, no more than is in our own prompts.

    What is reckoned is set right by how many requests wait in the engine, and they may be the others' own.
    """
    return round(min(reckoned, prompt_tokens))
