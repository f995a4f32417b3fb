"""The section of the configuration that says through which Redis replicas share what they know."""

import importlib.util
import os
import re
from typing import Annotated, Final, NamedTuple
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, ValidationInfo, model_validator

from tidegate.config_values import CHECKED, AbsolutePath, Section
from tidegate.faults import fault, shown

PREFIX: Final = r"^[A-Za-z0-9_.:-]{1,64}$"
_SCHEMES: Final = {"redis": False, "rediss": True}
EXPECTED: Final = "expected redis://host:port or rediss://host:port, the number of a database after it if not 0"


class Location(NamedTuple):
    """Where a URL leads."""

    host: str
    port: int
    database: int
    tls: bool


def located(url: str) -> Location:
    """Return where ``url`` leads.

    Raises:
        ValueError: it is not one of Redis.
    """
    parts = urlsplit(url)
    if parts.username is not None or parts.password is not None:
        raise fault("expected no user and no password in it: they have keys of their own; it is not shown here")
    database = re.fullmatch(r"/?|/([0-9]{1,3})", parts.path, re.ASCII)
    try:
        port = parts.port
    except ValueError:
        raise fault(f"{EXPECTED}, not {shown(url)}") from None
    if parts.scheme not in _SCHEMES or not parts.hostname or database is None or parts.query or parts.fragment:
        raise fault(f"{EXPECTED}, not {shown(url)}")
    return Location(parts.hostname, port or 6379, int(database[1] or 0), _SCHEMES[parts.scheme])


def _url(url: str) -> str:
    located(url)
    return url


def _prefix(prefix: str) -> str:
    if not re.fullmatch(PREFIX, prefix, re.ASCII):
        raise fault(f"expected 1 to 64 of A-Z, a-z, 0-9 and _.:-, not {shown(prefix)}")
    return prefix


class Redis(Section):
    """The Redis through which the replicas of this control plane share what tenants have used and what is in flight.

    Without it each replica counts for itself.
    """

    url: Annotated[str, AfterValidator(_url), Field(max_length=512)] = Field(
        description="Where it is, such as redis://10.0.0.5:6379 or, with TLS, rediss://redis.internal:6380; "
        "`/1` after it for database 1."
    )
    username: str | None = Field(None, min_length=1, max_length=256, description="The ACL user.")
    password_file: AbsolutePath | None = Field(
        None, description="Absolute path of the file with the password, read for each connection."
    )
    password_env: str | None = Field(
        None, pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", description="The environment variable with it, instead of a file."
    )
    ca: AbsolutePath | None = Field(
        None,
        description="Absolute path of the authorities (PEM) that may have signed its certificate; by default the "
        "system's.",
    )
    certificate: AbsolutePath | None = Field(
        None, description="Absolute path of our certificate (PEM), where it wants one."
    )
    key: AbsolutePath | None = Field(None, description="Absolute path of its key (PEM, without a passphrase).")
    prefix: Annotated[str, AfterValidator(_prefix), Field(json_schema_extra={"pattern": PREFIX})] = Field(
        "tidegate", description="What its keys begin with: one for each fleet."
    )
    salt_file: AbsolutePath | None = Field(
        None,
        description="Absolute path of a file, the same for all replicas, with what the names of tenants, keys and "
        "models are hashed with; by default the prefix, by which a name can be guessed that is known already.",
    )
    timeout_seconds: float = Field(
        0.02,
        ge=0.001,
        le=1.0,
        allow_inf_nan=False,
        description="How long one operation, and so any request, may wait for it.",
    )
    replicas: int = Field(
        1,
        ge=1,
        le=1000,
        description="How many replicas there are at least: by so many, or by as many as were seen last, limits are "
        "divided while it does not answer.",
    )

    inflight_seconds: float = Field(
        0.25,
        ge=0.05,
        le=1.0,
        allow_inf_nan=False,
        description="How often replicas tell each other what they have in flight by endpoint.",
    )

    @model_validator(mode="after")
    def _usable(self, info: ValidationInfo) -> "Redis":
        if self.password_file is not None and self.password_env is not None:
            raise fault("expected password_file or password_env, not both")
        if (self.certificate is None) != (self.key is None):
            raise fault("expected certificate and key, or neither")
        if not self.location.tls and (self.ca or self.certificate):
            raise fault("expected a URL that begins with rediss: certificates are for TLS")
        for path in (self.password_file, self.salt_file, self.ca, self.certificate, self.key):
            if info.context != CHECKED and path is not None and not os.access(path, os.R_OK):
                raise fault(f"expected files that can be read; {path} cannot")
        if info.context != CHECKED and importlib.util.find_spec("redis") is None:
            raise fault("the package redis, which it needs, is missing; install tidegate[redis]")
        return self

    @property
    def location(self) -> Location:
        """Where it is."""
        return located(self.url)
