"""Requests that nobody could decide on, where a pool is configured to take them all the same (``fail_open``).

Nobody but the decision reads bodies, so Envoy has to read the model itself then, and only then: its filter
``json_to_metadata`` is off on every route but the one that undecided requests start on. What it finds decides the pool
by the same rule as ever, so that a request never gets into another pool than it would have: names written out before
patterns, longer patterns before shorter ones, and pools that fail closed among them. What a route of the configuration
may lead elsewhere fails closed. Within the pool Envoy balances by itself.

Reading costs Envoy many times the body in memory, hence the bound; and nothing but the paths of APIs goes on.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

from envoy_data_plane.envoy.config.route.v3 import HeaderMatcher, RouteMatch
from envoy_data_plane.envoy.extensions.filters.http.json_to_metadata import v3 as json_to_metadata
from envoy_data_plane.envoy.type import v3 as envoy_type
from envoy_data_plane.envoy.type.matcher import v3 as matcher
from envoy_data_plane.google.protobuf import Any

from tidegate.config import Config, Pool
from tidegate.config_routes import Route
from tidegate.scheduling.routes import HeaderRule
from xds.names import UNREAD_KEY, UNREAD_NAMESPACE

READER = "envoy.filters.http.json_to_metadata"

NO_TYPE = "\n"
"""A content type that no header can have."""

MOST_BYTES = 1_048_576
"""The largest body that is read. One that is nothing but structure takes Envoy 60 times its size, for a moment."""

BY_USAGE = {"responses": "/v1/responses", "messages": "/v1/messages"}
"""The paths whose answers tell their usage in a form of their own."""

PATHS = (
    "/v1/((chat/)?completions|embeddings|messages/count_tokens)",
    "/v1/(audio/speech|images/generations)|/generate|/pooling",
    "(/v1)?/((de)?tokenize|classify|score)|(/v[12])?/rerank",
)
"""The paths of all other APIs that take JSON, as regular expressions: Envoy takes none that compiles to more than 100
instructions of RE2."""


def wanted(config: Config) -> bool:
    """Return whether any pool fails open."""
    return any(pool.fail_open for pool in config.pools)


def reader(*, on: bool) -> Any:
    """Return the filter that reads the model out of a body; ``on`` or off."""
    rule = json_to_metadata.JsonToMetadataRule(
        selectors=[json_to_metadata.JsonToMetadataSelector(key="model")],
        on_present=json_to_metadata.JsonToMetadataKeyValuePair(metadata_namespace=UNREAD_NAMESPACE, key=UNREAD_KEY),
    )
    rules = json_to_metadata.JsonToMetadataMatchRules(rules=[rule], allow_content_types=[NO_TYPE])
    if on:
        # Clients that say nothing, or text/plain, are read like others.
        rules.allow_empty_content_type = True
        rules.allow_content_types_regex = matcher.RegexMatcher(regex=".*")
    return Any.pack(json_to_metadata.JsonToMetadata(request_rules=rules))


def readable() -> list[HeaderMatcher]:
    """Return the headers of the requests that are read: those that say they are small enough."""
    length = envoy_type.Int64Range(start=1, end=MOST_BYTES + 1)
    return [HeaderMatcher(name="content-length", range_match=length)]


class Way(NamedTuple):
    """Which undecided requests go to which pool.

    Attributes:
        name: of the route.
        match: the requests.
        pool: where they go; ``None`` for those of a pool that fails closed.
        usage: the form in which the answer tells its usage, where it is one of ``BY_USAGE``.
    """

    name: str
    match: RouteMatch
    pool: Pool | None
    usage: str | None = None


def ways(config: Config, elsewhere: frozenset[str] = frozenset()) -> Iterator[Way]:
    """Iterate over them, in the order in which they are to be tried; pools that are ``elsewhere`` fail closed."""
    if not wanted(config):
        return
    for number, route in enumerate(config.routes):
        yield Way(f"routes[{number}]/closed", _concerned(route), None)
    named = [(model, pool) for pool in config.pools for model in pool.models]
    # The order of tidegate.scheduling.routing; the sort keeps that of the file among equals.
    named.sort(key=lambda item: ("*" in item[0], -len(item[0])))
    for model, pool in named:
        if not pool.fail_open or pool.name in elsewhere:
            yield Way(f"{pool.name}/closed", _match(model, RouteMatch(prefix="/")), None)
            continue
        for usage, path in BY_USAGE.items():
            yield Way(f"{pool.name}/open/{usage}", _match(model, RouteMatch(path=path)), pool, usage)
        for paths in PATHS:
            match = RouteMatch(safe_regex=matcher.RegexMatcher(regex=paths))
            yield Way(f"{pool.name}/open", _match(model, match), pool)


def _match(model: str, match: RouteMatch) -> RouteMatch:
    """Return ``match`` narrowed to POSTs whose body names a model that fits the pattern ``model``."""
    match.dynamic_metadata = [_read(matcher.ValueMatcher(string_match=_like(model)))]
    match.headers = [HeaderMatcher(name=":method", string_match=matcher.StringMatcher(exact="POST"))]
    return match


def _read(value: matcher.ValueMatcher) -> matcher.MetadataMatcher:
    path = [matcher.MetadataMatcherPathSegment(key=UNREAD_KEY)]
    return matcher.MetadataMatcher(filter=UNREAD_NAMESPACE, path=path, value=value)


def _concerned(route: Route) -> RouteMatch:
    """Return the match of all that ``route`` may take; nobody says of which API it is, nor how many tokens it has.

    Of a pattern of models, what stands before its first ``*`` is looked at.
    """
    path = route.path or "/*"
    match = RouteMatch(prefix=path[:-1]) if path.endswith("*") else RouteMatch(path=path)
    beginning = (route.model or "*").partition("*")
    model = matcher.ValueMatcher(present_match=True) if not beginning[0] else None
    match.dynamic_metadata = [_read(model or matcher.ValueMatcher(string_match=_like("".join(beginning[:2]))))]
    match.headers = [_header(header.rule) for header in route.headers]
    return match


def _header(rule: HeaderRule) -> HeaderMatcher:
    if rule.exact is not None:
        return HeaderMatcher(name=rule.name, string_match=matcher.StringMatcher(exact=rule.exact))
    if rule.prefix is not None:
        return HeaderMatcher(name=rule.name, string_match=matcher.StringMatcher(prefix=rule.prefix))
    return HeaderMatcher(name=rule.name, present_match=rule.present)


def _like(model: str) -> matcher.StringMatcher:
    """Return the match of the names that fit a pattern, without a regular expression wherever that is possible."""
    if "*" not in model:
        return matcher.StringMatcher(exact=model)
    if len(model) > 1 and model.index("*") == len(model) - 1:
        return matcher.StringMatcher(prefix=model[:-1])
    if len(model) > 1 and model.rindex("*") == 0:
        return matcher.StringMatcher(suffix=model[1:])
    pattern = ".*".join(map(re.escape, model.split("*")))
    return matcher.StringMatcher(safe_regex=matcher.RegexMatcher(regex=f"(?s:{pattern})"))
