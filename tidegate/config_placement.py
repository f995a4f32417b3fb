"""The sections of the configuration that keep requests apart or together: lanes by prompt size, and sessions."""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated

from pydantic import AfterValidator, Field, model_validator

from tidegate.config_values import IpAndPort, Section
from tidegate.faults import fault, shown

MAX_LANES = 8

HEADER_NAME = r"^[a-z0-9][a-z0-9-]{0,63}$"
COOKIE_NAME = r"^[A-Za-z0-9!#$%&'*+.^_`|~-]{1,64}$"
FIELD = r"^[A-Za-z0-9_-]{1,64}(\.[A-Za-z0-9_-]{1,64}){0,3}$"


def _header(name: str) -> str:
    if not re.fullmatch(HEADER_NAME, name, re.ASCII) or name in {"cookie", "x-request-id"}:
        raise fault(
            "expected the name of a header in lower case that stays the same in a session, such as x-session-id, not "
            f"{shown(name)}"
        )
    return name


def _cookie(name: str) -> str:
    if not re.fullmatch(COOKIE_NAME, name, re.ASCII):
        raise fault(f"expected the name of a cookie, of at most 64 characters, not {shown(name)}")
    return name


def _body_field(path: str) -> str:
    if not re.fullmatch(FIELD, path, re.ASCII):
        raise fault(f"expected a field's name, or up to four with dots between them, such as user, not {shown(path)}")
    return path


class Lane(Section):
    """A part of a pool that large prompts keep to, by a share or by name, so that they do not stall small ones."""

    above_tokens: int = Field(
        ge=1, le=10_000_000, description="Prompts of more tokens keep to it, unless a lane for larger ones is there."
    )
    share: float | None = Field(
        None,
        ge=0.01,
        le=0.9,
        allow_inf_nan=False,
        description="How many of the pool's endpoints are in it, at least one; which ones, hashing says.",
    )
    endpoints: tuple[IpAndPort, ...] = Field(
        (), max_length=10_000, description="The addresses of those in it, in place of `share`: the fast ones, say."
    )

    @model_validator(mode="after")
    def _one_way(self) -> "Lane":
        if (self.share is None) == (not self.endpoints):
            raise fault("expected either share or endpoints")
        return self


class Session(Section):
    """By what a session is known, for `session` among policies and scorers. Where several are given, in this order."""

    header: Annotated[str, AfterValidator(_header)] | None = Field(
        None, description="A header, in lower case. Without any of the three: `x-session-id`."
    )
    cookie: Annotated[str, AfterValidator(_cookie)] | None = Field(None, description="A cookie's name.")
    body_field: Annotated[str, AfterValidator(_body_field)] | None = Field(
        None, description="A text in a JSON body, such as `user`, `prompt_cache_key` or `metadata.user_id`."
    )


def misplaced_lanes(pools: Iterable[tuple[Sequence[Lane], Sequence[str]]]) -> Iterator[str]:
    """Yield a line for each fault in the lanes of pools, which are given with the addresses of their endpoints."""
    for at, (lanes, addresses) in enumerate(pools):
        seen: set[str] = set()
        sizes: set[int] = set()
        for number, lane in enumerate(lanes):
            place = f"pools[{at}].lanes[{number}]"
            if lane.above_tokens in sizes:
                yield f"{place}.above_tokens: {lane.above_tokens} is given already; expected each once"
            sizes.add(lane.above_tokens)
            for address in lane.endpoints:
                if address not in addresses:
                    yield f"{place}.endpoints: expected endpoints of the pool, not {shown(address)}"
                if address in seen:
                    yield f"{place}.endpoints: {shown(address)} is given already; expected each once"
                seen.add(address)
        if sum(lane.share or 0.0 for lane in lanes) >= 1.0:
            yield f"pools[{at}].lanes: expected shares below 1 together, so that some are left for small prompts"
