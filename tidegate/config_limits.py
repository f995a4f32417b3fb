"""The configuration's section ``limits``: what one request may take."""

from typing import Literal

from pydantic import Field

from tidegate.config_values import Seconds, Section

MAX_BODY_BYTES = 268_435_456
"""The most that ``limits.max_body_bytes`` may be: what one process can be asked to hold for one request."""


class Limits(Section):
    """Bounds on what one request may take."""

    max_body_bytes: int = Field(
        33_554_432,
        ge=1024,
        le=MAX_BODY_BYTES,
        description="Largest request body in bytes, decoded where it is compressed; a larger one is answered with 413.",
    )
    compressed_bodies: Literal["decode", "refuse"] = Field(
        "decode",
        description="Whether bodies in gzip, br or zstd are decoded to be read (the engine gets them as they came, and "
        "must understand them), or answered with 415.",
    )
    decision_timeout_seconds: Seconds = Field(
        10.0, ge=0.001, description="How long Envoy waits for a decision before it answers 504."
    )
    absence_seconds: float = Field(
        3.0,
        ge=0.0,
        le=60.0,
        allow_inf_nan=False,
        description="About how long a request waits for a control plane that is not there, being restarted, "
        "before it is answered with 503; 0 refuses at once.",
    )
    idle_timeout_seconds: Seconds = Field(
        300.0,
        ge=0.001,
        description="Silence on an answer, or nothing but comments, after which Envoy ends it; must exceed the "
        "longest wait for a first token.",
    )
    lease_seconds: Seconds = Field(
        45.0,
        ge=25.0,
        description="How long a request counts as in flight without a sign of life; Envoy gives one every 10 seconds.",
    )
    quarantine_seconds: Seconds = Field(
        600.0,
        ge=0.0,
        description="How long a request under which two engines died, known by its body, is refused; 0 for never.",
    )
