"""The filter ``model``: an endpoint that names its models serves no others."""

from tests.scheduling.ask import A, B, C, ask, candidate
from tidegate.scheduling.filters import model


def test_endpoints_with_other_models_are_left_out() -> None:
    offered = [candidate(A, models=("m", "n")), candidate(B, models=("n",)), candidate(C)]
    assert [endpoint.address for endpoint in model.keep(ask(model="m"), offered)] == [A, C]


def test_it_cannot_be_passed_over() -> None:
    assert model.HARD
    assert list(model.keep(ask(model="x"), [candidate(A, models=("m",))])) == []
