"""Following a route: which one is a request's, what the engine is to be asked for, and how many tokens that has."""

import functools
from collections.abc import Mapping
from typing import NamedTuple, Protocol

from extproc import renaming
from extproc.apis import PASSED_ON, Api, path_of
from extproc.body import ParsedBody
from extproc.desk import Desk
from tidegate.scheduling.routes import Routes, chosen
from tidegate.scheduling.splits import Split
from tidegate.tokens.count import CountSource, TokenCount


class Asked(Protocol):
    """A request as it came."""

    @property
    def headers(self) -> Mapping[str, str]:
        """Its headers, by names in lower case."""
        ...

    @property
    def body(self) -> bytes:
        """Its body."""
        ...


class Routed(NamedTuple):
    """A request where a route has led it, or where it was.

    Attributes:
        parsed: what it asks for, by the name that the engine knows.
        prompt: its tokens.
        pool: where it goes; empty where the model says.
        route: the route's name; empty where there is none.
        path: by which the engine is asked; empty where the route does not say.
        body: what the engine is sent; ``None`` for what the client sent.
        bounds: what bounds it in place of what its pool says, as Envoy knows it; empty for nothing.
    """

    parsed: ParsedBody
    prompt: TokenCount
    pool: str = ""
    route: str = ""
    path: str = ""
    body: bytes | None = None
    bounds: str = ""


class Who(NamedTuple):
    """Whose request it is, as far as that says where it goes.

    Attributes:
        pool: where it goes without a route; empty where its model says.
        session: its session; empty when it has none.
        tenant: who asks; empty where that is not asked.
    """

    pool: str = ""
    session: str = ""
    tenant: str = ""

    def key(self, split: Split | None, headers: Mapping[str, str]) -> str:
        """Return by what it stays on its side of ``split``; empty where nothing keeps it there."""
        match split.sticky if split is not None else "":
            case "session":
                return self.session
            case "tenant":
                return self.tenant
            case header if header.startswith(":"):
                return headers.get(header[1:], "")
        return ""


async def count(desk: Desk, api: Api, parsed: ParsedBody, pool: str = "") -> TokenCount:
    """Return the tokens of a request, in ``pool`` or where its model says."""
    if api is PASSED_ON:
        return TokenCount(parsed.prompt.other_tokens, CountSource.BYTES)
    return await desk.count(parsed.model, parsed.prompt, pool)


async def follow(
    routes: Routes, desk: Desk, api: Api, asked: Asked, coding: str | None, parsed: ParsedBody, who: Who
) -> Routed:
    """Return where the request goes; to the pool that ``who`` names if no route takes it.

    Tokens are counted as on the first route that may be the request's. Where it is another one that does not count the
    same way, nothing is learned from the count. What is passed on unread keeps its name.

    Raises:
        ApiError: the route has the model renamed, and that cannot be done.
    """
    possible = routes.possible(path_of(asked.headers), api.name, asked.headers, parsed.model)
    if not possible:
        return Routed(parsed, await count(desk, api, parsed, who.pool), who.pool)
    reads = api is not PASSED_ON
    first = routes.shared_out(possible[0], who.key(possible[0].split, asked.headers))
    counted = _named(parsed, first.rewrite_model if reads else "")
    prompt = await count(desk, api, counted, first.pool)
    route = chosen(possible, prompt.tokens)
    if route is None:
        return Routed(parsed, prompt._replace(uncorrected=None), who.pool)
    route = first if route is possible[0] else routes.shared_out(route, who.key(route.split, asked.headers))
    wanted = _named(parsed, route.rewrite_model if reads else "")
    if (counted.model, first.pool) != (wanted.model, route.pool):
        prompt = prompt._replace(uncorrected=None)
    body = None if wanted.model == parsed.model else await _renamed(desk, asked.body, coding, wanted.model)
    return Routed(wanted, prompt, route.pool, route.name, route.rewrite_path, body, route.bounds)


def _named(parsed: ParsedBody, model: str) -> ParsedBody:
    return parsed._replace(model=model) if model else parsed


async def _renamed(desk: Desk, body: bytes, coding: str | None, model: str) -> bytes:
    if coding is not None:
        raise renaming.refused_compressed()
    changed = await desk.intake.change(functools.partial(renaming.renamed, model), body)
    if changed is None:
        raise renaming.refused()
    return changed
