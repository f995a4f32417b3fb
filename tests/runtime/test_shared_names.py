"""Names by which parts that do not know each other agree: what one writes into Envoy's metadata, another reads."""

from extproc import codec, deadline, exchange, waiting
from tidegate.telemetry import access_log, record
from xds import exchanges, filters, names, queues


def test_the_decision_is_looked_for_where_it_is_put() -> None:
    assert codec.NAMESPACE == record.DECISION_NAMESPACE == names.DECISION_NAMESPACE
    assert codec.DESTINATION_NAMESPACE == record.DESTINATION_NAMESPACE == names.DESTINATION_NAMESPACE
    assert codec.DESTINATION_KEY == record.DESTINATION_KEY == names.DESTINATION_KEY


def test_the_access_log_is_read_as_it_is_written() -> None:
    assert access_log.LOG_NAME == names.ACCESS_LOG
    assert (record.TTFT_TAG, record.UPSTREAM_TTFT_TAG) == (names.TTFT_TAG, names.UPSTREAM_TTFT_TAG)


def test_what_a_decision_reads_is_sent_in_either_kind_of_exchange() -> None:
    assert tuple(codec.ATTRIBUTES) == exchanges.ATTRIBUTES
    assert exchanges.CHANGES_HEADERS == deadline.HEADER
    assert exchanges.PRIORITY_HEADER == waiting.HEADER
    assert exchanges.OBJECTIVE_HEADER == waiting.OBJECTIVE
    sent = {
        *codec.ATTRIBUTES.values(),
        exchanges.CHANGES_HEADERS,
        exchanges.PRIORITY_HEADER,
        exchanges.OBJECTIVE_HEADER,
        "content-length",
    }
    assert sent == set(filters.READ_BY_A_DECISION)


def test_what_a_client_is_told_of_its_wait_is_put_where_headers_are_made_of_it() -> None:
    assert queues.TOLD == (waiting.WAITED, waiting.ESTIMATED)
    assert exchange.PATIENCE_SECONDS < queues.PATIENCE_SECONDS
