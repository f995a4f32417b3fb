"""The table of Xids, and changing it."""

import pytest

from tidegate.agent.xids import XIDS, XidClass, XidClassError, with_changes


@pytest.mark.parametrize("number", [48, 64, 79, 95, 119, 120, 140])
def test_what_needs_a_reset_condemns(number: int) -> None:
    assert XIDS[number] is XidClass.CONDEMN


@pytest.mark.parametrize("number", [13, 31, 43, 45, 68])
def test_what_kubernetes_device_plugin_leaves_to_the_application_is_the_applications(number: int) -> None:
    assert XIDS[number] is XidClass.APPLICATION


@pytest.mark.parametrize("number", [74, 92, 94, 109])
def test_what_is_neither_casts_doubt(number: int) -> None:
    assert XIDS[number] is XidClass.WATCH


def test_the_table_can_be_changed_by_number() -> None:
    table = with_changes(("109=condemn", "79=watch", "5000=application"))
    assert (table[109], table[79], table[5000]) == (XidClass.CONDEMN, XidClass.WATCH, XidClass.APPLICATION)
    assert table[48] is XidClass.CONDEMN
    assert 5000 not in XIDS


@pytest.mark.parametrize(
    "change", ["", "79", "79=", "79=dead", "x=watch", "-1=watch", "79=watch ", "٧٩=watch", "=watch"]
)
def test_a_change_of_another_form_is_refused_with_what_was_expected(change: str) -> None:
    with pytest.raises(XidClassError, match="condemn, watch, application"):
        with_changes((change,))
