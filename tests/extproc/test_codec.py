import contextlib
import json

import pytest
from google.protobuf.json_format import MessageToDict
from hypothesis import given
from hypothesis import strategies as st

from extproc import codec
from extproc.errors import ApiError
from extproc.stream import AnswerHeaders, OtherMessage, PeerProtocolError, RequestBody, RequestHeaders, WholeRequest
from extproc.usage import Usage
from protos import core_pb2, ext_proc_pb2
from tests.extproc.envoy_model import body_message, header_map, headers_message, whole_message
from tidegate.fleet.ledger import Reservation
from tidegate.scheduling.dispatch import Decision
from tidegate.scheduling.request import InferenceRequest
from tidegate.tokens.count import CountSource, TokenCount

names = st.text("abcdefghijklmnopqrstuvwxyz-:", min_size=1)
latin = st.text(st.characters(codec="latin-1"))
anything = st.text(st.characters(codec="utf-8"))


@given(st.dictionaries(names, latin), st.booleans())
def test_headers_are_read_back_as_they_were_sent(headers: dict[str, str], end_of_stream: bool) -> None:
    values = [core_pb2.HeaderValue(key=key, raw_value=value.encode("latin-1")) for key, value in headers.items()]
    sent = ext_proc_pb2.HttpHeaders(headers=core_pb2.HeaderMap(headers=values), end_of_stream=end_of_stream)
    message = ext_proc_pb2.ProcessingRequest(request_headers=sent)

    assert codec.decode(message.SerializeToString()) == RequestHeaders(headers, end_of_stream)


@given(st.binary(), st.booleans())
def test_the_first_body_message_is_the_body_whatever_its_end_of_stream_says(body: bytes, end_of_stream: bool) -> None:
    assert codec.decode(body_message(body, end_of_stream=end_of_stream)) == RequestBody(body)


@given(st.dictionaries(st.sampled_from(sorted(codec.ATTRIBUTES.values())), latin), st.binary(), st.booleans())
def test_a_body_with_attributes_is_the_whole_request(headers: dict[str, str], body: bytes, end_of_stream: bool) -> None:
    assert codec.decode(whole_message(headers, body, end_of_stream=end_of_stream)) == WholeRequest(headers, body)


def test_attributes_that_were_not_asked_for_are_no_headers() -> None:
    message = ext_proc_pb2.ProcessingRequest.FromString(whole_message({":path": "/"}, b"{}"))
    message.attributes["envoy.filters.http.ext_proc"].fields["source.address"].string_value = b"10.0.0.1:1"
    message.attributes["another.filter"].fields["request.path"].string_value = b"/admin"

    assert codec.decode(message.SerializeToString()) == WholeRequest({":path": "/"}, b"{}")


KNOWN = {
    "connection.uri_san_peer_certificate": "spiffe://acme",
    "metadata.filter_metadata['envoy.filters.http.jwt_authn']['payload']['sub']": "acme",
}


@pytest.mark.parametrize("whole", [True, False])
def test_what_envoy_knows_of_who_asks_bears_names_that_no_header_can_have(*, whole: bool) -> None:
    headers = {":path": "/", **dict.fromkeys(KNOWN, "a client's"), "source.address": "a client's"}
    sent = whole_message(headers, b"{}", also_read=[*KNOWN]) if whole else headers_message(headers)
    message = ext_proc_pb2.ProcessingRequest.FromString(sent)
    fields = message.attributes["envoy.filters.http.ext_proc"].fields
    for name, value in KNOWN.items():
        fields[name].string_value = value.encode()
    fields["source.address"].string_value = b"10.0.0.1:1"
    decoded = codec.decode(message.SerializeToString())
    assert isinstance(decoded, RequestHeaders | WholeRequest)
    claimed = dict.fromkeys(KNOWN, "a client's") if whole else headers
    assert decoded.headers == {":path": "/", **claimed, **{f":{name}": value for name, value in KNOWN.items()}}


@given(st.binary(max_size=64))
def test_any_bytes_are_a_message_or_a_protocol_error(message: bytes) -> None:
    decoded = None
    with contextlib.suppress(PeerProtocolError):
        decoded = codec.decode(message)
    assert decoded is None or isinstance(decoded, RequestHeaders | RequestBody | WholeRequest | OtherMessage)


def test_a_repeated_header_is_joined_and_an_unset_raw_value_falls_back() -> None:
    headers = core_pb2.HeaderMap(
        headers=[
            core_pb2.HeaderValue(key="content-encoding", raw_value=b"gzip"),
            core_pb2.HeaderValue(key="content-encoding", raw_value=b"br"),
            core_pb2.HeaderValue(key=":path", value="/old"),
            core_pb2.HeaderValue(key="x-odd", raw_value=b"\xff\xfe"),
        ]
    )
    message = ext_proc_pb2.ProcessingRequest(request_headers=ext_proc_pb2.HttpHeaders(headers=headers))

    decoded = codec.decode(message.SerializeToString())

    assert decoded == RequestHeaders({"content-encoding": "gzip,br", ":path": "/old", "x-odd": "\xff\xfe"})


@pytest.mark.parametrize("mode", [0, 1, 3, 4, 5])
def test_a_body_mode_other_than_buffered_is_not_served(mode: int) -> None:
    assert codec.decode(headers_message(mode=mode)) == OtherMessage(
        "request_headers with a request_body_mode other than BUFFERED"
    )
    assert codec.decode(whole_message(mode=mode)) == OtherMessage(
        "request_body with a request_body_mode other than BUFFERED"
    )


def test_buffered_is_served_and_so_is_an_envoy_that_does_not_say() -> None:
    assert isinstance(codec.decode(headers_message(mode=2)), RequestHeaders)
    assert isinstance(codec.decode(headers_message(mode=None)), RequestHeaders)


def test_what_is_said_of_the_requests_body_is_not_about_an_answer() -> None:
    message = ext_proc_pb2.ProcessingRequest(
        response_headers=ext_proc_pb2.HttpHeaders(headers=header_map({":status": "200"}))
    )
    message.protocol_config.request_body_mode = ext_proc_pb2.ProcessingMode.NONE
    message.protocol_config.response_body_mode = ext_proc_pb2.ProcessingMode.STREAMED

    assert codec.decode(message.SerializeToString()) == AnswerHeaders({":status": "200"})


def test_messages_of_other_phases_are_named() -> None:
    response = ext_proc_pb2.ProcessingRequest(response_body=ext_proc_pb2.HttpBody(body=b"x"))
    trailers = ext_proc_pb2.ProcessingRequest(request_trailers=ext_proc_pb2.HttpTrailers())

    assert codec.decode(response.SerializeToString()) == OtherMessage("response_body")
    assert codec.decode(trailers.SerializeToString()) == OtherMessage("request_trailers")
    assert codec.decode(b"") == OtherMessage("an empty message")


def test_the_reply_that_asks_for_the_body_changes_nothing() -> None:
    reply = ext_proc_pb2.ProcessingResponse.FromString(codec.CONTINUE)

    assert reply.WhichOneof("response") == "request_headers"
    assert MessageToDict(reply) == {"requestHeaders": {}}


def _decided(model: str = "m", addresses: tuple[str, ...] = ("10.0.0.1:80",)) -> tuple[InferenceRequest, Decision]:
    request = InferenceRequest("id-1", "completions", model, TokenCount(42, CountSource.BYTES), 7, stream=True)
    return request, Decision("pool-a", "random", addresses, Reservation("id-1", "pool-a", addresses[0], 42, 7, 0.0))


def test_a_decision_names_the_endpoints_in_order_and_clears_the_route() -> None:
    request, decision = _decided(addresses=("10.0.0.1:80", "[fd00::7]:8000"))

    reply = ext_proc_pb2.ProcessingResponse.FromString(codec.decision_on_body(request, decision, Usage.RESPONSES))

    assert reply.WhichOneof("response") == "request_body"
    assert reply.request_body.response.clear_route_cache
    assert reply.request_body.response.header_mutation == ext_proc_pb2.HeaderMutation()
    assert reply.request_body.response.HasField("header_mutation"), "without it, the route stays"
    assert reply.request_body.response.status == ext_proc_pb2.CommonResponse.CONTINUE
    assert not reply.request_body.response.HasField("body_mutation")
    assert MessageToDict(reply.dynamic_metadata) == {
        "envoy.lb": {"x-gateway-destination-endpoint": "10.0.0.1:80,[fd00::7]:8000"},
        "tidegate": {
            "reservation": "id-1",
            "pool": "pool-a",
            "model": "m",
            "api": "completions",
            "prompt_tokens": 42,
            "count_source": "bytes",
            "stream": True,
            "usage": "responses",
        },
    }


def test_a_count_that_an_engine_can_be_held_against_is_told_as_it_was_before_correction() -> None:
    request, decision = _decided()
    request = request._replace(prompt=TokenCount(55, CountSource.LEARNED, 42))

    reply = ext_proc_pb2.ProcessingResponse.FromString(codec.decision_on_body(request, decision))

    told = MessageToDict(reply.dynamic_metadata)["tidegate"]
    assert (told["prompt_tokens"], told["count_source"], told["uncorrected_tokens"]) == (55, "learned", 42)


def test_a_decision_on_headers_says_the_same_in_the_reply_to_headers() -> None:
    request, decision = _decided()

    on_headers = ext_proc_pb2.ProcessingResponse.FromString(codec.decision_on_headers(request, decision))
    on_body = ext_proc_pb2.ProcessingResponse.FromString(codec.decision_on_body(request, decision))

    assert on_headers.WhichOneof("response") == "request_headers"
    assert on_headers.request_headers.response == on_body.request_body.response
    assert on_headers.dynamic_metadata == on_body.dynamic_metadata


@given(anything)
def test_any_model_name_survives_the_metadata(model: str) -> None:
    request, decision = _decided(model)

    reply = ext_proc_pb2.ProcessingResponse.FromString(codec.decision_on_body(request, decision))

    assert MessageToDict(reply.dynamic_metadata)["tidegate"]["model"] == model


@given(st.sampled_from([400, 404, 405, 415, 429, 503]), anything, st.dictionaries(names, anything))
def test_a_refusal_is_read_back_as_it_was_written(status: int, message: str, known: dict[str, str]) -> None:
    error = ApiError(status, message, reason="why", param="p", code="c", headers={"retry-after": "1"})

    reply = ext_proc_pb2.ProcessingResponse.FromString(codec.refusal(error, known))
    answer = reply.immediate_response

    assert answer.status.code == status
    assert answer.details == "tidegate_why"
    assert json.loads(answer.body)["error"]["message"] == message
    assert {
        option.header.key: (option.header.raw_value, option.header.value, option.append_action)
        for option in answer.headers.set_headers
    } == {"content-type": (b"application/json", "", 2), "retry-after": (b"1", "", 2)}
    assert MessageToDict(reply.dynamic_metadata) == ({"tidegate": known} if known else {})
