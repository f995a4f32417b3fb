"""Routes as the configuration file writes them, and what makes no sense of one."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Final, NamedTuple, Protocol

from pydantic import AfterValidator, Field, model_validator

from tidegate.api_paths import ANSWERED_HERE, API_OF, FORMS, PATHS, own_path
from tidegate.choice_config import one_of
from tidegate.config_splits import MAX_SIDES, Rollout, Side, Sticky, split
from tidegate.config_values import HeaderName, Model, PoolName, RewrittenModel, Seconds, Section, Timeout
from tidegate.faults import fault, shown
from tidegate.scheduling.routes import HeaderRule
from tidegate.scheduling.routes import Route as Traffic
from tidegate.scheduling.routing import fits

MAX_ROUTES: Final = 256
"""They are looked through one after the other for each request."""

MAX_BOUNDS: Final = 16
"""Different bounds of routes: each of them makes routes of its own in Envoy, for every path and form of usage."""

_PATH = r"^/[A-Za-z0-9._~!$&'()+,;=:@/-]*\*?$"
_PLAIN_PATH = r"^/[A-Za-z0-9._~/-]*[A-Za-z0-9._~-]$"
_VALUE = r"^[!-~]([ -~]*[!-~])?$"


def _normal(path: str) -> bool:
    parts = path.removesuffix("*").split("/")[1:]
    return not any(part in {".", ".."} for part in parts) and "" not in parts[:-1]


def _path(path: str) -> str:
    if not re.fullmatch(_PATH, path, re.ASCII) or not _normal(path):
        raise fault(
            "expected a path as it is after normalisation, such as /api/v1/chat, with * at its end for all that begin "
            f"so, not {shown(path)}"
        )
    if path.startswith(ANSWERED_HERE):
        raise fault(f"expected a path that goes to an engine, not {shown(path)}")
    return path


def _plain_path(path: str) -> str:
    if not re.fullmatch(_PLAIN_PATH, path, re.ASCII) or not _normal(path):
        raise fault(f"expected a path of letters, digits and . _ ~ -, such as /v1/chat/completions, not {shown(path)}")
    return path


def _value(value: str) -> str:
    if not re.fullmatch(_VALUE, value, re.ASCII):
        raise fault(f"expected printable ASCII with no space at either end, not {shown(value)}")
    return value


Path = Annotated[str, AfterValidator(_path), Field(max_length=256, json_schema_extra={"pattern": _PATH})]
PlainPath = Annotated[
    str, AfterValidator(_plain_path), Field(max_length=256, json_schema_extra={"pattern": _PLAIN_PATH})
]
HeaderValue = Annotated[str, AfterValidator(_value), Field(max_length=256)]
Api = Annotated[str, *one_of(PATHS)]


class Header(Section):
    """What a header must be: one of `exact`, `prefix` and `present`."""

    name: HeaderName = Field(description="Its name, in lower case.")
    exact: HeaderValue | None = Field(None, description="The whole value.")
    prefix: HeaderValue | None = Field(None, description="The beginning of the value.")
    present: bool | None = Field(None, description="Whether it is there, whatever its value.")

    @model_validator(mode="after")
    def _one(self) -> "Header":
        if sum(rule is not None for rule in (self.exact, self.prefix, self.present)) != 1:
            raise fault("expected one of exact, prefix and present")
        return self

    @property
    def rule(self) -> HeaderRule:
        """The rule that decisions keep to."""
        return HeaderRule(self.name, self.exact, self.prefix, self.present is not False)


class Bounds(NamedTuple):
    """What bounds a request; ``None`` is what its pool says.

    Attributes:
        timeout_seconds: how long it may take; 0 for any time.
        idle_timeout_seconds: how long its answer may bring nothing.
        retries: how often Envoy tries it again elsewhere.
    """

    timeout_seconds: float | None = None
    idle_timeout_seconds: float | None = None
    retries: int | None = None

    @property
    def key(self) -> str:
        """What a decision says of them; empty where they are the pool's.

        They are spelt out: while a new configuration reaches Envoy, a name could stand for others.
        """
        return "" if self == (None, None, None) else ",".join("" if one is None else f"{one:g}" for one in self)


AS_THE_POOL: Final = Bounds()


class Route(Section):
    """Requests that go to a pool whatever the models' patterns say. Of several routes the first that fits counts."""

    name: Annotated[str, Field(min_length=1, max_length=64)] | None = Field(
        None, description="What `tidegate explain` calls it; by default its place, such as `routes[2]`."
    )
    path: Path | None = Field(
        None, description="The path of the request, without its query; with `*` at its end, what it begins with."
    )
    api: Api | None = Field(
        None,
        description="The API that the request is for. On a path that is no API's own it says which one is spoken "
        "there, and the engine is asked by that API's own path.",
    )
    headers: tuple[Header, ...] = Field((), max_length=16, description="What headers must be, all of them.")
    model: Model | None = Field(None, description="The model that the client names; `*` stands for any characters.")
    min_prompt_tokens: int = Field(0, ge=0, le=100_000_000, description="The fewest tokens of the prompt.")
    max_prompt_tokens: int | None = Field(None, ge=0, le=100_000_000, description="The most tokens of the prompt.")
    pool: PoolName | None = Field(None, description="Where it goes; this, or `split`.")
    split: tuple[Side, ...] = Field(
        (), max_length=MAX_SIDES, description="The pools between which its requests are shared out."
    )
    sticky: Sticky | None = Field(
        None, description="By what requests stay on a side. By default each goes for itself, and the shares are exact."
    )
    rollout: Rollout | None = Field(None, description="How one of two pools takes over from the other, step by step.")
    rewrite_model: RewrittenModel | None = Field(
        None, description="The name by which the engine is asked for the model, in place of the client's. JSON alone."
    )
    rewrite_path: PlainPath | None = Field(
        None, description="The path by which the engine is asked; the query stays as it is."
    )
    timeout_seconds: Timeout | None = Field(
        None, ge=0.0, description="How long its requests may take, in place of what their pool says; 0 for any time."
    )
    idle_timeout_seconds: Seconds | None = Field(
        None, ge=0.001, description="How long their answers may bring nothing, in place of what their pool says."
    )
    retries: int | None = Field(
        None, ge=0, le=10, description="How often Envoy tries them again elsewhere, in place of what their pool says."
    )

    def traffic(self, at: int) -> Traffic:
        """Return the route that decisions keep to; ``at`` is its place."""
        shared = split(self.split, self.sticky) if self.split else None
        return Traffic(
            pool=self.pool or (shared.largest.pool if shared else ""),
            name=self.name or f"routes[{at}]",
            path=self.path or "",
            api=self.api or "",
            headers=tuple(header.rule for header in self.headers),
            model=self.model or "",
            min_prompt_tokens=self.min_prompt_tokens,
            max_prompt_tokens=self.max_prompt_tokens,
            rewrite_model=self.rewrite_model or "",
            rewrite_path=self.rewrite_path or "",
            split=shared,
            bounds=self.bounds.key,
        )

    @property
    def bounds(self) -> Bounds:
        """What bounds its requests in place of what their pool says."""
        return Bounds(self.timeout_seconds, self.idle_timeout_seconds, self.retries)

    @property
    def pools(self) -> tuple[str, ...]:
        """The pools that it may lead to."""
        return tuple(side.pool for side in self.split) if self.pool is None else (self.pool,)

    @property
    def new_names(self) -> tuple[tuple[str, str | None], ...]:
        """Each of those pools, and by what name the model is asked for there; ``None`` for the client's."""
        if self.pool is not None:
            return ((self.pool, self.rewrite_model),)
        return tuple((side.pool, side.rewrite_model or self.rewrite_model) for side in self.split)


def ways(routes: Iterable[Route]) -> tuple[Route, ...]:
    """Return ``routes`` without the shares of their splits: what Envoy has to know of them."""
    return tuple(
        route.model_copy(update={"split": tuple(side.model_copy(update={"weight": 1}) for side in route.split)})
        for route in routes
    )


class Serving(Protocol):
    """What has to be known of a pool."""

    @property
    def name(self) -> str:
        """Its name."""
        ...

    @property
    def models(self) -> tuple[str, ...]:
        """The patterns of the models."""
        ...

    @property
    def adapters(self) -> tuple[str, ...]:
        """And of the adapters."""
        ...


def traffic(routes: Iterable[Route]) -> tuple[Traffic, ...]:
    """Return the routes that decisions keep to."""
    return tuple(route.traffic(at) for at, route in enumerate(routes))


def engine_paths(routes: Iterable[Route], pool: str) -> tuple[str, ...]:
    """Return the paths by which engines of ``pool`` may be asked in place of the client's."""
    found = {route.rewrite_path for route in routes if route.rewrite_path and pool in route.pools}
    # Whatever its path, a request may go by its model.
    found |= {own_path(route.api) for route in routes if route.path and route.api}
    return tuple(sorted(found))


def ways_to(routes: Iterable[Route], pool: str) -> tuple[tuple[Bounds, str | None], ...]:
    """Return what may bound a request to ``pool``, with the paths by which its engines may be asked then.

    ``None`` is the client's path. What has bounds, and a path, comes before what has not.
    """
    routes = [route for route in routes if pool in route.pools or (route.path and route.api)]
    own = sorted({own_path(route.api) for route in routes if route.path and route.api})
    found = dict.fromkeys(
        (route.bounds, path)
        for route in routes
        if route.bounds.key and pool in route.pools
        for path in ([route.rewrite_path] if route.rewrite_path else [*own, None])
    )
    return (*found, *((AS_THE_POOL, path) for path in (*engine_paths(routes, pool), None)))


def paths_speaking(routes: Iterable[Route], *apis: str) -> tuple[str, ...]:
    """Return the paths, or what they begin with, that are no API's own and on which one of ``apis`` is spoken."""
    paths = (route.path for route in routes if route.path and route.api in apis)
    return tuple(path for path in paths if not any(_begins(path, known) for known in API_OF))


def models_served(routes: Iterable[Route]) -> tuple[str, ...]:
    """Return the names, or patterns of them, by which engines are asked for the models that ``routes`` name."""
    names = (new or route.model for route in routes for _, new in route.new_names)
    return tuple(dict.fromkeys(name for name in names if name))


def renames(routes: Iterable[Route]) -> bool:
    """Return whether any engine is asked for a model by another name than the client's."""
    return any(name is not None for route in routes for _, name in route.new_names)


def header_names(routes: Iterable[Route]) -> tuple[str, ...]:
    """Return the names of the headers that ``routes`` look at."""
    routes = tuple(routes)
    named = {header.name for route in routes for header in route.headers}
    return tuple(sorted(named | {route.sticky.header for route in routes if route.sticky and route.sticky.header}))


def senseless(
    routes: Sequence[Route], pools: Sequence[Serving], unknown_pool: str | None, mirrors: Collection[str] = ()
) -> Iterator[str]:
    """Yield a line for each fault in ``routes``, and for each pool that nothing leads to, not even as a mirror."""
    serving = {pool.name: (*pool.models, *pool.adapters) for pool in pools}
    earlier: list[Traffic] = []
    for at, (route, here) in enumerate(zip(routes, traffic(routes), strict=True)):
        yield from _leading(at, route, serving)
        yield from _contrary(at, route, unknown_pool)
        yield from _rewriting(at, route, serving)
        shadow = next((number for number, before in enumerate(earlier) if before.covers(here)), None)
        if shadow is not None:
            yield f"routes[{at}]: routes[{shadow}] takes all of its requests; expected it before that one"
        earlier.append(here)
    yield from _rolling_apart(routes)
    if len({route.bounds for route in routes}) > MAX_BOUNDS + 1:
        yield f"routes: expected at most {MAX_BOUNDS} different combinations of timeouts and retries"
    led_to = {unknown_pool, *mirrors, *(name for route in routes for name in route.pools)}
    for at, pool in enumerate(pools):
        if not serving[pool.name] and pool.name not in led_to:
            yield f"pools[{at}].models: expected at least 1 in the list, or a route to the pool"


def unknown_to_all(routes: Sequence[Route], tenants: Collection[object]) -> Iterator[str]:
    """Yield a line for each of ``routes`` whose requests are to stay by tenant, where there are no ``tenants``."""
    for at, route in enumerate(routes):
        if route.sticky is not None and route.sticky.by == "tenant" and not tenants:
            yield f"routes[{at}].sticky.by: expected session or a header, or tenants, of which there are none"


def _leading(at: int, route: Route, serving: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Yield what is wrong with where it leads."""
    if (route.pool is None) == (not route.split):
        yield f"routes[{at}]: expected one of pool and split"
    known = f"expected one of {', '.join(serving)}"
    if route.pool is not None and route.pool not in serving:
        yield f"routes[{at}].pool: {known}, not {shown(route.pool)}"
    sides = [side.pool for side in route.split]
    for place, side in enumerate(sides):
        if side not in serving:
            yield f"routes[{at}].split[{place}].pool: {known}, not {shown(side)}"
        elif side in sides[:place]:
            yield f"routes[{at}].split[{place}].pool: expected each pool once, not {shown(side)} again"
    if route.sticky is not None and not route.split:
        yield f"routes[{at}].sticky: expected a split"
    if route.split and not any(side.weight for side in route.split):
        yield f"routes[{at}].split: expected a weight above 0"
    if route.rollout is not None:
        yield from _rolling(at, route.rollout.canary, sides)


def _rolling(at: int, canary: str, sides: Sequence[str]) -> Iterator[str]:
    if len(sides) != 2:
        yield f"routes[{at}].rollout: expected a split between two pools"
    elif canary not in sides:
        yield f"routes[{at}].rollout.canary: expected one of {', '.join(sides)}, not {shown(canary)}"


def _rolling_apart(routes: Sequence[Route]) -> Iterator[str]:
    """Yield what keeps rollouts from being told apart: by name, and by how requests end at their pools."""
    names = [route.name or f"routes[{at}]" for at, route in enumerate(routes)]
    taken: dict[str, int] = {}
    for at, route in enumerate(routes):
        if route.rollout is None:
            continue
        if names.count(names[at]) > 1:
            yield f"routes[{at}].name: expected one that no other route has, for its rollout, not {shown(names[at])}"
        for pool in route.pools:
            if taken.setdefault(pool, at) != at:
                first = f"routes[{taken[pool]}].rollout"
                yield f"routes[{at}].rollout: expected pools that are in no other; {shown(pool)} is in {first}"


def _contrary(at: int, route: Route, unknown_pool: str | None) -> Iterator[str]:
    """Yield what no request can be."""
    most = route.max_prompt_tokens
    if most is not None and most < route.min_prompt_tokens:
        least = f"expected at least min_prompt_tokens, {route.min_prompt_tokens}"
        yield f"routes[{at}].max_prompt_tokens: {least}, not {most}"
    if route.path is None:
        return
    known = {api for path, api in API_OF.items() if _begins(route.path, path)}
    exact = not route.path.endswith("*")
    if route.api is not None and exact and known and route.api not in known:
        whose = f"expected {', '.join(sorted(known))}, whose path it is, or none"
        yield f"routes[{at}].api: {whose}, not {shown(route.api)}"
    if route.api is None and not known:
        if unknown_pool is None:
            yield f"routes[{at}].api: missing; {shown(route.path)} is no API's own, and unknown_paths are refused"
        elif route.rewrite_model is not None or route.model is not None:
            yield f"routes[{at}].api: missing; what is passed on unread names no model"


def _begins(pattern: str, path: str) -> bool:
    return path.startswith(pattern[:-1]) if pattern.endswith("*") else path == pattern


def _rewriting(at: int, route: Route, serving: Mapping[str, Sequence[str]]) -> Iterator[str]:
    for place, (pool, name) in enumerate(route.new_names):
        if name is None:
            continue
        own = route.pool is None and route.split[place].rewrite_model is not None
        key = f"routes[{at}].split[{place}].rewrite_model" if own else f"routes[{at}].rewrite_model"
        served = serving.get(pool, ())
        if served and not any(fits(pattern, name) for pattern in served):
            yield f"{key}: expected a model that the pool {pool} serves, not {shown(name)}"
        if name == route.model:
            yield f"{key}: expected another name than the client's, {shown(name)}"
        if route.api in FORMS or API_OF.get(route.path or "") in FORMS:
            yield f"{key}: expected none, for the names in forms are not rewritten"
    if route.rewrite_path is not None and route.rewrite_path == route.path:
        yield f"routes[{at}].rewrite_path: expected another path than the client's, {shown(route.path)}"
