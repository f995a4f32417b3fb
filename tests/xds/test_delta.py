"""Transcripts of the incremental variant."""

import pytest

from tests.xds.wire import Wire, fleet
from xds.response import up_to_date
from xds.snapshot import Snapshot
from xds.subscription import ABSENT, MAX_NAMES, TooManyNamesError
from xds.type_urls import CLUSTER, ENDPOINT, LISTENER, ORDER, ROUTE

ONE = fleet({"a": "1"})
TWO = fleet({"a": "1", "b": "1"})


def connected(snapshot: Snapshot = ONE) -> Wire:
    """Return a client that has everything of ``snapshot``, as Envoy asks for it."""
    wire = Wire(incremental=True)
    pools = sorted(snapshot.of_type(ENDPOINT))
    for type_url, names in ((CLUSTER, []), (ENDPOINT, pools), (LISTENER, []), (ROUTE, ["r"])):
        wire.change(type_url, names)
        assert len(wire.pull(snapshot)) == 1
        wire.acknowledge(type_url)
    assert wire.pull(snapshot) == []
    return wire


def versions(snapshot: Snapshot, type_url: str) -> dict[str, str]:
    return {name: resource.version for name, resource in snapshot.of_type(type_url).items()}


def rejoined(had: Snapshot, now: Snapshot) -> tuple[Wire, list[str]]:
    """Return a client that comes back with what it ``had``, and what it is sent before it answers anything."""
    wire = Wire(incremental=True)
    for type_url in ORDER:
        names = [] if type_url in (CLUSTER, LISTENER) else sorted(had.of_type(type_url))
        wire.change(type_url, names, versions=versions(had, type_url))
    return wire, wire.pull(now)


def test_only_what_changed_is_sent() -> None:
    wire = connected(TWO)
    assert wire.pull(fleet({"a": "1", "b": "2"})) == ["EDS b"]


def test_a_client_that_comes_back_is_sent_only_what_differs() -> None:
    assert rejoined(TWO, TWO)[1] == []
    assert rejoined(TWO, fleet({"a": "1", "b": "2"}))[1] == ["EDS b"]


def test_a_client_that_comes_back_loses_a_cluster_only_after_the_routes_that_may_name_it() -> None:
    wire, sent = rejoined(TWO, ONE)
    assert sent == ["RDS r"]
    wire.acknowledge(ROUTE)
    assert wire.pull(ONE) == ["CDS -b"]


def test_a_client_that_came_back_unchanged_can_lose_a_cluster_later() -> None:
    wire, _ = rejoined(TWO, TWO)
    assert wire.pull(ONE) == ["RDS r"]
    wire.acknowledge(ROUTE)
    assert wire.pull(ONE) == ["CDS -b"]


def test_a_removed_cluster_takes_its_assignment_with_it_in_that_order() -> None:
    wire = connected(TWO)
    assert wire.pull(ONE) == ["RDS r"]
    wire.acknowledge(ROUTE)
    assert wire.pull(ONE) == ["CDS -b"]
    wire.acknowledge(CLUSTER)
    wire.change(ENDPOINT, unsubscribe=["b"])
    assert wire.pull(ONE) == []
    assert wire.client.subscriptions[ENDPOINT].held.keys() == {"a"}


def test_an_assignment_is_not_taken_away_while_the_client_has_its_cluster() -> None:
    wire = connected(TWO)
    wire.pull(ONE)
    assert wire.pull(ONE) == []
    wire.acknowledge(ROUTE)
    wire.pull(ONE)
    wire.acknowledge(CLUSTER)
    assert wire.pull(ONE) == ["EDS -b"]


def test_a_name_that_does_not_exist_is_said_to_be_absent_once() -> None:
    wire = Wire(incremental=True)
    wire.change(ENDPOINT, ["nobody"])
    assert wire.pull(ONE) == ["EDS -nobody"]
    wire.acknowledge(ENDPOINT)
    assert wire.client.subscriptions[ENDPOINT].held == {"nobody": ABSENT}
    assert wire.pull(ONE) == []
    assert wire.pull(fleet({"nobody": "1"})) == ["EDS nobody"]


def test_a_resource_that_is_subscribed_to_again_is_sent_again() -> None:
    wire = connected()
    wire.change(ENDPOINT, ["a"])
    assert wire.pull(ONE) == ["EDS a"]


def test_the_assignment_of_a_changed_cluster_follows_it_though_nobody_asks() -> None:
    wire = connected(TWO)
    changed = fleet({"a": "1", "b": "1"}, cluster="2")
    assert wire.pull(changed) == ["CDS a b", "EDS a b"]
    wire.acknowledge(CLUSTER)
    wire.acknowledge(ENDPOINT)
    assert wire.pull(changed) == []


def test_an_assignment_that_left_before_its_cluster_changed_follows_it_once_more() -> None:
    wire = connected()
    assert wire.pull(fleet({"a": "2"})) == ["EDS a"]
    changed = fleet({"a": "2"}, cluster="2")
    assert wire.pull(changed) == ["CDS a"]
    wire.acknowledge(ENDPOINT)
    assert wire.pull(changed) == ["EDS a"]


def test_where_an_assignment_was_rejected_the_last_good_one_follows_its_cluster() -> None:
    wire = connected()
    wire.pull(fleet({"a": "bad"}))
    wire.refuse(ENDPOINT)
    changed = fleet({"a": "bad"}, cluster="2")
    assert wire.pull(changed) == ["CDS a", "EDS a"]
    offered = wire.client.subscriptions[ENDPOINT].offered
    assert offered is not None
    assert offered.changed == versions(ONE, ENDPOINT)
    wire.acknowledge(CLUSTER)
    wire.acknowledge(ENDPOINT)
    assert wire.pull(changed) == []


def test_a_bad_assignment_that_comes_with_a_changed_cluster_is_followed_by_the_last_good_one() -> None:
    wire = connected(TWO)
    changed = fleet({"a": "bad", "b": "1"}, cluster="2")
    assert wire.pull(changed) == ["CDS a b", "EDS a b"]
    wire.refuse(ENDPOINT)  # only a is new in it, so a it was
    assert wire.client.subscriptions[ENDPOINT].rejected.keys() == {"a"}
    assert wire.pull(changed) == ["EDS a b"]
    wire.refuse(ENDPOINT)  # both are what it had: there is nothing left to try
    wire.acknowledge(CLUSTER)
    assert wire.pull(changed) == []


def test_what_is_unsubscribed_is_not_sent() -> None:
    wire = connected(TWO)
    wire.change(ENDPOINT, unsubscribe=["b"])
    assert wire.pull(fleet({"a": "1", "b": "2"})) == []


def test_subscriptions_count_even_with_a_stale_nonce() -> None:
    wire = connected(TWO)
    wire.pull(fleet({"a": "2", "b": "1"}))
    assert wire.change(ENDPOINT, unsubscribe=["b"], nonce="stale") is None
    assert wire.client.subscriptions[ENDPOINT].names == {"a"}
    assert wire.client.subscriptions[ENDPOINT].offered is not None


def test_the_wildcard_can_be_given_and_taken_by_name() -> None:
    wire = Wire(incremental=True)
    wire.change(CLUSTER, ["*"])
    assert wire.pull(TWO) == ["CDS a b"]
    wire.acknowledge(CLUSTER)
    wire.change(CLUSTER, ["a"], unsubscribe=["*"])
    assert wire.client.subscriptions[CLUSTER].wildcard is False
    assert wire.pull(fleet({"a": "1", "c": "1"})) == ["CDS a"]


def test_a_rejected_version_is_not_sent_again_but_the_next_one_is() -> None:
    wire = connected()
    wire.pull(fleet({"a": "bad"}))
    answered = wire.refuse(ENDPOINT, reason="why")
    assert answered is not None
    assert answered.error == "why"
    assert wire.pull(fleet({"a": "bad"})) == []
    assert wire.pull(fleet({"a": "3"})) == ["EDS a"]


def test_a_rejected_version_that_was_taken_back_is_tried_when_it_is_wanted_again() -> None:
    """Such as a listener on a port that was taken: what speaks against it may pass."""
    good, bad = fleet({"a": "1"}), fleet({"a": "1"}, listener="on a taken port")
    wire = connected(good)
    assert wire.pull(bad) == ["LDS l"]
    wire.refuse(LISTENER)
    assert wire.pull(bad) == []
    assert wire.pull(good) == []
    assert wire.pull(bad) == ["LDS l"]


def test_of_several_rejected_resources_each_is_tried_alone() -> None:
    wire = connected(TWO)
    changed = fleet({"a": "2", "b": "bad"})
    assert wire.pull(changed) == ["EDS a b"]
    wire.refuse(ENDPOINT)
    assert wire.pull(changed) == ["EDS a"]
    wire.acknowledge(ENDPOINT)
    assert wire.pull(changed) == ["EDS b"]
    wire.refuse(ENDPOINT)
    assert wire.pull(changed) == []
    assert wire.pull(fleet({"a": "3", "b": "bad"})) == ["EDS a"]


def test_a_rejected_removal_is_not_repeated() -> None:
    wire = connected(TWO)
    wire.pull(ONE)
    wire.acknowledge(ROUTE)
    assert wire.pull(ONE) == ["CDS -b"]
    wire.refuse(CLUSTER)
    assert wire.pull(ONE) == ["EDS -b"]
    wire.refuse(ENDPOINT)
    assert "CDS -b" not in wire.pull(ONE)


def test_an_answer_to_nothing_changes_nothing() -> None:
    wire = connected()
    nonce = wire.nonces[ENDPOINT]
    assert wire.change(ENDPOINT, nonce=nonce) is None
    assert wire.refuse(ENDPOINT) is None
    assert wire.client.subscriptions[ENDPOINT].rejected == {}
    assert wire.pull(ONE) == []


def test_routes_wait_for_new_clusters_and_their_assignments() -> None:
    wire = connected()
    assert wire.pull(TWO) == ["CDS b"]
    wire.acknowledge(CLUSTER)
    assert wire.pull(TWO) == []
    wire.change(ENDPOINT, ["b"])
    assert wire.pull(TWO) == ["EDS b"]
    wire.acknowledge(ENDPOINT)
    assert wire.pull(TWO) == ["RDS r"]


def test_a_client_is_up_to_date_when_it_has_answered_for_everything_and_not_before() -> None:
    wire = connected()
    assert up_to_date(ONE, wire.client)
    assert not up_to_date(TWO, wire.client), "nothing is sent yet"
    wire.pull(TWO)
    assert not up_to_date(TWO, wire.client)
    wire.acknowledge(CLUSTER)
    wire.pull(TWO)
    assert not up_to_date(TWO, wire.client), "the routes wait for the assignment, which it has not asked for"
    wire.change(ENDPOINT, ["b"])
    wire.pull(TWO)
    wire.acknowledge(ENDPOINT)
    wire.pull(TWO)
    assert not up_to_date(TWO, wire.client)
    wire.refuse(ROUTE)
    assert up_to_date(TWO, wire.client), "what it refused alone, it will never have"


def test_routes_follow_when_a_new_cluster_is_rejected() -> None:
    wire = connected()
    wire.pull(TWO)
    wire.refuse(CLUSTER)
    assert wire.pull(TWO) == ["RDS r"]


def test_too_many_names_are_refused() -> None:
    names = [str(number) for number in range(MAX_NAMES + 1)]
    with pytest.raises(TooManyNamesError):
        Wire(incremental=True).change(ENDPOINT, names)
    with pytest.raises(TooManyNamesError):
        Wire(incremental=True).change(ENDPOINT, versions=dict.fromkeys(names, "1"))


def test_a_client_that_asks_for_everything_hears_that_there_is_nothing() -> None:
    wire = Wire(incremental=True)
    wire.change(CLUSTER, [])
    assert wire.pull(Snapshot([])) == ["CDS"]
    wire.acknowledge(CLUSTER)
    assert wire.pull(Snapshot([])) == []
