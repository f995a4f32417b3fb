"""Following a route: which one is a request's, what the engine is to be asked for, and how many tokens that has."""

import functools
from typing import NamedTuple

from extproc import renaming
from extproc.apis import PASSED_ON, Api, path_of
from extproc.body import ParsedBody
from extproc.desk import Desk
from extproc.stream import Stream
from tidegate.scheduling.routes import Routes, chosen
from tidegate.tokens.count import CountSource, TokenCount


class Routed(NamedTuple):
    """A request where a route has led it, or where it was.

    Attributes:
        parsed: what it asks for, by the name that the engine knows.
        prompt: its tokens.
        pool: where it goes; empty where the model says.
        route: the route's name; empty where there is none.
        path: by which the engine is asked; empty where the route does not say.
        body: what the engine is sent; ``None`` for what the client sent.
    """

    parsed: ParsedBody
    prompt: TokenCount
    pool: str = ""
    route: str = ""
    path: str = ""
    body: bytes | None = None


async def count(desk: Desk, api: Api, parsed: ParsedBody, pool: str = "") -> TokenCount:
    """Return the tokens of a request, in ``pool`` or where its model says."""
    if api is PASSED_ON:
        return TokenCount(parsed.prompt.other_tokens, CountSource.BYTES)
    return await desk.count(parsed.model, parsed.prompt, pool)


async def follow(
    routes: Routes, desk: Desk, api: Api, stream: Stream, coding: str | None, parsed: ParsedBody, pool: str
) -> Routed:
    """Return where the request goes; to ``pool`` if no route takes it.

    Tokens are counted as on the first route that may be the request's. Where it is another one that does not count the
    same way, nothing is learned from the count. What is passed on unread keeps its name.

    Raises:
        ApiError: the route has the model renamed, and that cannot be done.
    """
    possible = routes.possible(path_of(stream.headers), api.name, stream.headers, parsed.model)
    if not possible:
        return Routed(parsed, await count(desk, api, parsed, pool), pool)
    reads = api is not PASSED_ON
    counted = _named(parsed, possible[0].rewrite_model if reads else "")
    prompt = await count(desk, api, counted, possible[0].pool)
    route = chosen(possible, prompt.tokens)
    if route is None:
        return Routed(parsed, prompt._replace(uncorrected=None), pool)
    wanted = _named(parsed, route.rewrite_model if reads else "")
    if (counted.model, possible[0].pool) != (wanted.model, route.pool):
        prompt = prompt._replace(uncorrected=None)
    body = None if wanted.model == parsed.model else await _renamed(desk, stream.body, coding, wanted.model)
    return Routed(wanted, prompt, route.pool, route.name, route.rewrite_path, body)


def _named(parsed: ParsedBody, model: str) -> ParsedBody:
    return parsed._replace(model=model) if model else parsed


async def _renamed(desk: Desk, body: bytes, coding: str | None, model: str) -> bytes:
    if coding is not None:
        raise renaming.refused_compressed()
    changed = await desk.intake.change(functools.partial(renaming.renamed, model), body)
    if changed is None:
        raise renaming.refused()
    return changed
