import pytest

from xds.snapshot import Reference, Resource, Snapshot
from xds.type_urls import CLUSTER, ENDPOINT, LISTENER, ROUTE


def test_equal_content_bears_an_equal_version_and_other_content_another() -> None:
    assert Resource(CLUSTER, "a", b"x").version == Resource(CLUSTER, "b", b"x").version
    assert Resource(CLUSTER, "a", b"x").version != Resource(CLUSTER, "a", b"y").version


def test_a_consistent_snapshot_names_nothing_missing() -> None:
    snapshot = Snapshot(
        [
            Resource(CLUSTER, "a", b"", frozenset({Reference(ENDPOINT, "a")})),
            Resource(ENDPOINT, "a", b""),
            Resource(LISTENER, "l", b"", frozenset({Reference(ROUTE, "r")})),
            Resource(ROUTE, "r", b"", frozenset({Reference(CLUSTER, "a")})),
        ]
    )
    assert snapshot.consistent() == ()


@pytest.mark.parametrize(
    ("holder", "wanted", "said"),
    [
        (ROUTE, CLUSTER, "RouteConfiguration x names the Cluster y, which does not exist"),
        (CLUSTER, ENDPOINT, "Cluster x names the ClusterLoadAssignment y, which does not exist"),
        (LISTENER, ROUTE, "Listener x names the RouteConfiguration y, which does not exist"),
    ],
)
def test_what_is_missing_is_named(holder: str, wanted: str, said: str) -> None:
    snapshot = Snapshot([Resource(holder, "x", b"", frozenset({Reference(wanted, "y")}))])
    assert snapshot.consistent() == (said,)


def test_two_resources_of_one_name_are_an_error() -> None:
    with pytest.raises(ValueError, match="two resources"):
        Snapshot([Resource(CLUSTER, "a", b"1"), Resource(CLUSTER, "a", b"2")])


def test_a_type_that_is_not_served_is_an_error() -> None:
    with pytest.raises(ValueError, match="no such resource type"):
        Snapshot([Resource("type.googleapis.com/x", "a", b"")])


def test_a_snapshot_cannot_be_changed() -> None:
    named = Snapshot([Resource(CLUSTER, "a", b"")]).of_type(CLUSTER)
    with pytest.raises(TypeError):
        named["b"] = Resource(CLUSTER, "b", b"")  # type: ignore[index]
    assert Snapshot([]).of_type("unknown") == {}
