"""Objectives as the configuration writes them: what a request is worth, by a name that it asks for."""

from typing import Annotated

from pydantic import Field

from tidegate.config_values import Section

MAX_OBJECTIVES = 10_000


class RequestObjective(Section):
    """A priority with a name."""

    name: Annotated[str, Field(min_length=1, max_length=253, pattern=r"^[!-~]+$")] = Field(
        description="What `x-gateway-inference-objective` or `x-llm-d-inference-objective` says in a request."
    )
    priority: int = Field(
        0,
        ge=-100,
        le=100,
        description="The priority of these requests; larger is sooner, below 0 is batch work. Where there are tenants, "
        "never more than that of their tier.",
    )


def twice(objectives: tuple[RequestObjective, ...]) -> list[str]:
    """Return a line for each name that is given again."""
    names = [objective.name for objective in objectives]
    return [
        f"objectives[{at}].name: {name} is given already; expected each once"
        for at, name in enumerate(names)
        if name in names[:at]
    ]
