"""Who a request comes from, and whose limits it counts against."""

import fnmatch
import re
from collections.abc import Iterable
from typing import NamedTuple


class Caller(NamedTuple):
    """Who asks, as the configuration knows them.

    Attributes:
        tenant: the tenant's name.
        priority: the highest that its requests may have; larger is more urgent.
        scopes: whose limits every request of theirs counts against: the tenant's, the key's.
        reserves_limit: what is reserved for an answer is all that the request allows it to have, where it says so;
            otherwise, what such answers probably have.
        salt: keeps what is known of caches for their prompts apart from others'; empty for nothing.
        by_model: the same for single models: a pattern, where ``*`` stands for any characters, and the scope.
    """

    tenant: str
    priority: int = 0
    scopes: tuple[str, ...] = ()
    by_model: tuple[tuple[re.Pattern[str], str], ...] = ()
    reserves_limit: bool = True
    salt: str = ""

    def scopes_for(self, model: str) -> tuple[str, ...]:
        """Return whose limits a request for ``model`` counts against; one that names no model, against every model's.

        A name that can be left out would otherwise be a way around a model's limits.
        """
        if not self.by_model:
            return self.scopes
        return (*self.scopes, *(scope for fits, scope in self.by_model if not model or fits.fullmatch(model)))


def models(patterns: Iterable[tuple[str, str]]) -> tuple[tuple[re.Pattern[str], str], ...]:
    """Return ``by_model`` of patterns as they are written, each with its scope."""
    return tuple(
        (re.compile(fnmatch.translate(pattern.replace("[", "[[]").replace("?", "[?]"))), scope)
        for pattern, scope in patterns
    )
