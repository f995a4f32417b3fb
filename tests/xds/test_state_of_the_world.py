"""Transcripts of the state-of-the-world variant."""

import pytest

from protos.discovery_pb2 import DiscoveryResponse
from tests.xds.wire import Wire, fleet
from xds.snapshot import Snapshot
from xds.subscription import MAX_NAMES, TooManyNamesError
from xds.type_urls import CLUSTER, ENDPOINT, LISTENER, ROUTE

ONE = fleet({"a": "1"})


def connected(snapshot: Snapshot = ONE) -> Wire:
    """Return a client that has everything of ``snapshot``, as Envoy asks for it."""
    wire = Wire(incremental=False)
    pools = sorted(snapshot.of_type(ENDPOINT))
    wire.ask(CLUSTER)
    assert wire.pull(snapshot) == ["CDS " + " ".join(pools)]
    wire.ask(CLUSTER)
    wire.ask(ENDPOINT, pools)
    assert wire.pull(snapshot) == ["EDS " + " ".join(pools)]
    wire.ask(ENDPOINT, pools)
    wire.ask(LISTENER)
    assert wire.pull(snapshot) == ["LDS l"]
    wire.ask(LISTENER)
    wire.ask(ROUTE, ["r"])
    assert wire.pull(snapshot) == ["RDS r"]
    wire.ask(ROUTE, ["r"])
    assert wire.pull(snapshot) == []
    return wire


def test_an_acknowledged_client_is_sent_nothing_more() -> None:
    wire = connected()
    assert wire.pull(fleet({"a": "1"})) == []


def test_only_the_type_that_changed_is_sent_again() -> None:
    wire = connected()
    assert wire.pull(fleet({"a": "2"})) == ["EDS a"]


def test_nothing_is_sent_while_a_response_is_unanswered() -> None:
    wire = connected()
    wire.pull(fleet({"a": "2"}))
    assert wire.pull(fleet({"a": "3"})) == []
    wire.ask(ENDPOINT, ["a"])
    assert wire.pull(fleet({"a": "3"})) == ["EDS a"]


def test_a_rejection_is_told_by_its_error_and_reported_with_its_reason() -> None:
    wire = connected()
    wire.pull(fleet({"a": "2"}))
    answered = wire.refuse(ENDPOINT, ["a"], "port out of range")
    assert answered is not None
    assert answered.error == "port out of range"
    assert {*answered.offer.changed} == {"a"}


def test_a_rejected_version_is_not_sent_again_but_the_next_one_is() -> None:
    wire = connected()
    wire.pull(fleet({"a": "2"}))
    wire.refuse(ENDPOINT, ["a"])
    assert wire.pull(fleet({"a": "2"})) == []
    assert wire.pull(fleet({"a": "3"})) == ["EDS a"]


def test_other_types_go_on_after_a_rejection() -> None:
    wire = connected()
    wire.pull(fleet({"a": "1"}, listener="bad"))
    wire.refuse(LISTENER)
    assert wire.pull(fleet({"a": "2"}, listener="bad")) == ["EDS a"]


def test_the_version_before_a_rejected_one_needs_no_sending() -> None:
    wire = connected()
    wire.pull(fleet({"a": "2"}))
    wire.refuse(ENDPOINT, ["a"])
    assert wire.pull(ONE) == []


def test_of_several_rejected_resources_each_is_tried_alone_and_the_good_ones_get_through() -> None:
    wire = connected(fleet({"a": "1", "b": "1"}))
    changed = fleet({"a": "2", "b": "bad"})
    assert wire.pull(changed) == ["EDS a b"]
    wire.refuse(ENDPOINT, ["a", "b"])
    assert wire.pull(changed) == ["EDS a b"]  # a is new in it, b is what the client has
    assert wire.ask(ENDPOINT, ["a", "b"]) is not None
    assert wire.pull(changed) == ["EDS a b"]  # now with the new b
    wire.refuse(ENDPOINT, ["a", "b"])
    assert wire.pull(changed) == []
    assert wire.client.subscriptions[ENDPOINT].held["a"] == changed.of_type(ENDPOINT)["a"].version


def test_a_stale_nonce_is_ignored() -> None:
    wire = connected()
    old = wire.nonces[ENDPOINT]
    wire.pull(fleet({"a": "2"}))
    assert wire.ask(ENDPOINT, [], nonce=old) is None
    assert wire.client.subscriptions[ENDPOINT].names == {"a"}
    assert wire.ask(ENDPOINT, ["a"]) is not None


def test_more_names_are_answered_with_what_was_added() -> None:
    two = fleet({"a": "1", "b": "1"})
    wire = Wire(incremental=False)
    wire.ask(ENDPOINT, ["a"])
    assert wire.pull(two) == ["EDS a"]
    wire.ask(ENDPOINT, ["a", "b"])
    assert wire.pull(two) == ["EDS a b"]


def test_the_same_question_asked_again_is_answered_again() -> None:
    wire = connected()
    wire.ask(ENDPOINT, ["a"])
    assert wire.pull(ONE) == ["EDS a"]
    wire.ask(ENDPOINT, ["a"])
    assert wire.pull(ONE) == []


def test_fewer_names_are_not_a_question() -> None:
    two = fleet({"a": "1", "b": "1"})
    wire = connected(two)
    wire.ask(ENDPOINT, ["a"])
    assert wire.pull(two) == []


def test_no_names_mean_everything_only_until_the_first_name() -> None:
    two = fleet({"a": "1", "b": "1"})
    wire = Wire(incremental=False)
    wire.ask(CLUSTER)
    assert wire.pull(two) == ["CDS a b"]
    wire.ask(CLUSTER, ["a"])
    assert wire.client.subscriptions[CLUSTER].wildcard is False
    wire.ask(CLUSTER)
    assert wire.client.subscriptions[CLUSTER].wildcard is False
    wire.ask(CLUSTER, ["*"])
    assert wire.client.subscriptions[CLUSTER].wildcard is True


def test_no_names_mean_nothing_for_assignments_and_routes() -> None:
    wire = Wire(incremental=False)
    wire.ask(ENDPOINT)
    wire.ask(ROUTE)
    assert wire.pull(ONE) == []


def test_routes_wait_until_new_clusters_and_their_assignments_are_acknowledged() -> None:
    wire = connected()
    two = fleet({"a": "1", "b": "1"})
    assert wire.pull(two) == ["CDS a b"]
    wire.ask(CLUSTER)
    assert wire.pull(two) == []  # Envoy has not asked for the assignment of b yet
    wire.ask(ENDPOINT, ["a", "b"])
    assert wire.pull(two) == ["EDS a b"]
    wire.ask(ENDPOINT, ["a", "b"])
    assert wire.pull(two) == ["RDS r"]


def test_routes_do_not_wait_for_ever_when_an_assignment_is_rejected() -> None:
    wire = connected()
    two = fleet({"a": "1", "b": "1"})
    wire.pull(two)
    wire.ask(CLUSTER)
    wire.ask(ENDPOINT, ["a", "b"])
    wire.pull(two)
    wire.refuse(ENDPOINT, ["a", "b"])
    assert "RDS r" in wire.pull(two) + wire.pull(two)


def test_a_cluster_goes_only_after_the_routes_stopped_naming_it() -> None:
    wire = connected(fleet({"a": "1", "b": "1"}))
    assert wire.pull(ONE) == ["RDS r"]
    wire.ask(ROUTE, ["r"])
    assert wire.pull(ONE) == ["CDS a"]


def test_a_cluster_stays_while_the_client_keeps_the_routes_that_name_it() -> None:
    wire = connected(fleet({"a": "1", "b": "1"}))
    wire.pull(ONE)
    wire.refuse(ROUTE, ["r"])
    assert wire.pull(ONE) == []


def test_a_type_that_is_not_served_is_ignored() -> None:
    wire = Wire(incremental=False)
    assert wire.ask("type.googleapis.com/envoy.service.runtime.v3.Runtime", ["x"]) is None
    assert wire.client.subscriptions == {}
    assert wire.pull(ONE) == []


def test_too_many_names_are_refused() -> None:
    wire = Wire(incremental=False)
    with pytest.raises(TooManyNamesError):
        wire.ask(ENDPOINT, [str(number) for number in range(MAX_NAMES + 1)])


def test_equal_sets_bear_equal_versions_whatever_stream_they_are_sent_on() -> None:
    first, second = Wire(incremental=False), Wire(incremental=False)
    second.sent = 40
    for wire in (first, second):
        wire.ask(CLUSTER)
    one, other = first.pull_one(ONE), second.pull_one(fleet({"a": "2"}))
    assert isinstance(one, DiscoveryResponse)
    assert isinstance(other, DiscoveryResponse)
    assert one.nonce != other.nonce
    assert one.version_info == other.version_info != ""


def test_a_client_that_asks_for_everything_hears_that_there_is_nothing() -> None:
    """It may hold what it had from before; and it waits for an answer."""
    wire = Wire(incremental=False)
    wire.ask(CLUSTER)
    assert wire.pull(Snapshot([])) == ["CDS"]
    wire.ask(CLUSTER)
    assert wire.pull(Snapshot([])) == []
