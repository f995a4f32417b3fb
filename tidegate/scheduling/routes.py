"""Routes: which requests go to a pool whatever the models' patterns say, and what they are called there.

A pool for each class of traffic keeps them apart: nothing that one class does touches what another one waits for. The
first route that fits counts. How many tokens a prompt has is known only once it was counted, and it is counted as the
pool that will serve it counts; so a route is looked for in two steps, ``possible`` and ``chosen``.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from tidegate.scheduling.routing import compiled, fits
from tidegate.scheduling.splits import Sharing, Split


class HeaderRule(NamedTuple):
    """What a header must be: ``exact``, or begin with ``prefix``, or be there, or not.

    Attributes:
        name: in lower case.
        exact: the whole value; ``None`` where that does not matter.
        prefix: the beginning of it, likewise.
        present: whether it is there; ``True`` where one of the others is given.
    """

    name: str
    exact: str | None = None
    prefix: str | None = None
    present: bool = True

    def fits(self, headers: Mapping[str, str]) -> bool:
        """Return whether the headers keep to it."""
        name, exact, prefix, present = self
        value = headers.get(name)
        if value is None:
            return not present
        if exact is not None:
            return value == exact
        return present and (prefix is None or value.startswith(prefix))

    def covers(self, other: "HeaderRule") -> bool:
        """Return whether all headers that keep to ``other`` keep to this rule."""
        if self.name != other.name or self.present != other.present:
            return False
        if self.exact is not None:
            return other.exact == self.exact
        if self.prefix is None:
            return True
        begins = other.exact if other.exact is not None else other.prefix
        return begins is not None and begins.startswith(self.prefix)


class Route(NamedTuple):
    """Requests, and where they go. What is empty does not matter.

    Attributes:
        pool: where they go.
        name: what the route is called.
        path: their path; with ``*`` at its end, what it begins with.
        api: the API that they are for. On a path that is no API's own, it says which one is spoken there.
        headers: what their headers must be, all of it.
        model: a pattern of the models that they name.
        min_prompt_tokens: the fewest tokens of their prompt.
        max_prompt_tokens: the most; ``None`` for any number.
        rewrite_model: the name by which the engine is asked for the model.
        rewrite_path: the path by which the engine is asked.
        split: how its requests are shared out between pools, of which ``pool`` is the largest; ``None`` for that alone.
        bounds: what bounds its requests in place of what their pool says, as Envoy knows it.
    """

    pool: str
    name: str = ""
    path: str = ""
    api: str = ""
    headers: tuple[HeaderRule, ...] = ()
    model: str = ""
    min_prompt_tokens: int = 0
    max_prompt_tokens: int | None = None
    rewrite_model: str = ""
    rewrite_path: str = ""
    split: Split | None = None
    bounds: str = ""

    @property
    def weighs(self) -> bool:
        """Whether the number of tokens matters."""
        return self.min_prompt_tokens > 0 or self.max_prompt_tokens is not None

    def is_at(self, path: str, headers: Mapping[str, str]) -> bool:
        """Return whether it takes requests on ``path`` with ``headers``."""
        if self.path and not _path_fits(self.path, path):
            return False
        for rule in self.headers:  # noqa: SIM110  a generator would take as long as the rules
            if not rule.fits(headers):
                return False
        return True

    def takes(self, tokens: int) -> bool:
        """Return whether it takes prompts of so many tokens."""
        return self.min_prompt_tokens <= tokens and (self.max_prompt_tokens is None or tokens <= self.max_prompt_tokens)

    def covers(self, other: "Route") -> bool:
        """Return whether it takes everything that ``other`` takes, so that nothing is left for that one behind it.

        Where that follows from several conditions together, it is not seen.
        """
        most = self.max_prompt_tokens
        return (
            _path_covers(self.path, other.path)
            and self.api in {"", other.api}
            and all(any(rule.covers(its) for its in other.headers) for rule in self.headers)
            # As a text, the other's ``*`` fits nothing but a ``*`` of ours, which then fits whatever it stands for.
            and (not self.model or (bool(other.model) and fits(self.model, other.model)))
            and self.min_prompt_tokens <= other.min_prompt_tokens
            and (most is None or (other.max_prompt_tokens is not None and other.max_prompt_tokens <= most))
        )


class Routes:
    """The routes of a configuration, in its order."""

    def __init__(self, routes: Iterable[Route]) -> None:
        """Take the first of ``routes`` that fits."""
        routes = tuple(routes)
        # Taken apart beforehand: each is looked at for each request, and most are passed over by their first parts.
        self._parts = tuple(
            (
                route.api,
                "" if "*" in route.model else route.model,
                compiled(route.model) if "*" in route.model else None,
                route,
            )
            for route in routes
        )
        self._sharing = {route: Sharing(route.split) for route in routes if route.split is not None}
        self._speaking = tuple(route for route in routes if route.path and route.api)

    def api_of(self, path: str, headers: Mapping[str, str]) -> str:
        """Return the name of the API that is spoken on a ``path`` that is no API's own; empty when none is."""
        return next((route.api for route in self._speaking if route.is_at(path, headers)), "")

    def shared_out(self, route: Route, key: str = "") -> Route:
        """Return ``route`` to one side of its split: the next one, or the one that ``key`` belongs to."""
        if route.split is None:
            return route
        side = self._sharing[route].side(key)
        return route._replace(pool=side.pool, rewrite_model=side.rewrite_model or route.rewrite_model)

    def possible(self, path: str, api: str, headers: Mapping[str, str], model: str) -> Sequence[Route]:
        """Return the routes of which ``chosen`` will choose: those that fit, but for the number of tokens.

        The last of them is the first that takes any number.
        """
        found = []
        for its_api, name, pattern, route in self._parts:
            if (its_api and its_api != api) or (name and name != model):
                continue
            if (pattern is None or pattern.fullmatch(model)) and route.is_at(path, headers):
                found.append(route)
                if not route.weighs:
                    break
        return found


def chosen(possible: Sequence[Route], tokens: int) -> Route | None:
    """Return the route of a prompt of so many tokens; ``None`` where the models' patterns say."""
    return next((route for route in possible if route.takes(tokens)), None)


def _path_fits(pattern: str, path: str) -> bool:
    if pattern.endswith("*"):
        return path.startswith(pattern[:-1])
    return not pattern or path == pattern


def _path_covers(pattern: str, other: str) -> bool:
    if pattern.endswith("*"):
        return other.removesuffix("*").startswith(pattern[:-1])
    return not pattern or other == pattern
