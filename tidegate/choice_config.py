"""How endpoints are chosen and decisions recorded, as the configuration file writes it."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from tidegate.faults import fault, shown
from tidegate.scheduling import filters, pickers, scorers


def one_of(names: Iterable[str]) -> tuple[AfterValidator, Any]:
    """Return what makes a text one of ``names``, in the schema too."""
    known = tuple(names)

    def check(name: str) -> str:
        if name not in known:
            raise fault(f"expected one of {', '.join(known)}, not {shown(name)}")
        return name

    return AfterValidator(check), Field(json_schema_extra={"enum": list(known)})


def _absolute(path: str) -> str:
    if not Path(path).is_absolute():
        raise fault(f"expected the absolute path of a file, not {shown(path)}")
    return path


Policy = Annotated[str, *one_of(pickers.names())]
Filter = Annotated[str, *one_of(filters.names())]
ScorerName = Annotated[str, *one_of(scorers.names())]
Role = Literal["both", "prefill", "decode"]


class Scorer(BaseModel):
    """One scorer of the policy weighted_scores, and how much it counts."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    name: ScorerName = Field(description="Which one.")
    weight: float = Field(1.0, ge=0.0, le=1000.0, allow_inf_nan=False, description="By how much its score counts.")


class DecisionLog(BaseModel):
    """Where decisions are recorded, for `tidegate explain`."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    file: Annotated[str, AfterValidator(_absolute), Field(max_length=4096)] | None = Field(
        None, description="Absolute path of a file of JSON lines, without any prompt; none: nothing is recorded."
    )
    sample: float = Field(
        0.01, ge=0.0, le=1.0, allow_inf_nan=False, description="The share of the decisions that is recorded."
    )
    max_bytes: int = Field(
        67_108_864,
        ge=1_000_000,
        le=1_099_511_627_776,
        description="Size at which the file is renamed to end in `.1`, over an older one, and begun anew.",
    )


def weighed_for_nothing(pools: Iterable[tuple[str, tuple[Scorer, ...]]]) -> Iterator[str]:
    """Yield a line for each fault in the scorers of pools, which are given with their policies."""
    for at, (policy, weighed) in enumerate(pools):
        names = [scorer.name for scorer in weighed]
        if names and policy != "weighted_scores":
            yield f"pools[{at}].scorers: expected none with the policy {policy}; only weighted_scores weighs them"
        for number, name in enumerate(names):
            if name in names[:number]:
                yield f"pools[{at}].scorers[{number}].name: {shown(name)} is given already; expected each once"
