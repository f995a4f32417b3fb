"""The section of the configuration that is the endpoint picker's."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field


class Picker(BaseModel):
    """What `tidegate picker` does besides; it means nothing to the other commands."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    health_port: Annotated[int, Field(ge=1, le=65535)] | None = Field(
        None,
        description="A port for gRPC health checks alone. They are answered on `control.ext_proc_port` in any case.",
    )
    max_held_bytes: int = Field(
        1_073_741_824,
        ge=1024,
        le=1_099_511_627_776,
        description="Bytes of request bodies that may be held at a time, all requests together; one that would exceed "
        "it is answered with 429. Have it be several times `limits.max_body_bytes`.",
    )
    drain_seconds: float = Field(
        30.0,
        ge=0.0,
        le=86_400.0,
        allow_inf_nan=False,
        description="How long answers may go on that are running when the picker is told to stop. The gateway breaks "
        "off those that have not ended by then.",
    )
    test_header: Literal["ignore", "obey"] = Field(
        "ignore",
        description="Whether `test-epp-endpoint-selection` in a request chooses the endpoint, as the conformance tests "
        "of the Gateway API want it. Any client can send it.",
    )
