"""Names that several resources share, and that other parts of Tidegate know by agreement."""

LISTENER = "inference"
"""The listener for clients; also the prefix of the statistics of its connection manager."""

ROUTES = "inference"
"""The route configuration of that listener."""

EXT_PROC_CLUSTER = "tidegate_ext_proc"
ACCESS_LOG_CLUSTER = "tidegate_access_log"
HOLD_CLUSTER = "tidegate_hold"
"""The control plane again, for questions that are not to be answered (``stalls``)."""
UNDECIDED_CLUSTER = "tidegate_undecided"
"""A cluster without endpoints: where a request goes that nobody decided on. Pool names cannot hold an underscore."""

TOO_LARGE = "tidegate_too_large"
"""The route of requests that say they are larger than a body may be."""

DECISION_FILTER = "envoy.filters.http.ext_proc"
BUFFER_FILTER = "envoy.filters.http.buffer"

DECISION_NAMESPACE = "tidegate"
"""Dynamic metadata in which ext_proc says what it decided; ``pool`` is the cluster."""

ANSWER_FILTER = "tidegate.filters.http.answers"
"""The filter through which answers are read, where a pool has them read; routes name it."""

ANSWER_NAMESPACE = "tidegate_answer"
"""Dynamic metadata in which ext_proc says what it read in an answer, where a pool has its answers read."""

DESTINATION_NAMESPACE = "envoy.lb"
DESTINATION_KEY = "x-gateway-destination-endpoint"
SERVED_KEY = "x-gateway-destination-endpoint-served"
"""The endpoints to try, and the one that served: the protocol of the Gateway API Inference Extension, proposal 004."""

JWKS_CLUSTER = "tidegate_jwks"
"""Where Envoy fetches the keys of those who issue tokens."""

USAGE_FILTER = "envoy.filters.http.ai_protocol_manager"
USAGE_NAMESPACE = "ai_usage"
"""Typed dynamic metadata in which Envoy leaves the token usage that it read out of an answer."""

ACCESS_LOG = "tidegate"
TTFT_TAG = "ttft_us"
UPSTREAM_TTFT_TAG = "upstream_ttft_us"

ENDING_NAMESPACE = "tidegate_ending"
"""Dynamic metadata in which Envoy notes what engines said in errors: said, of the last error with 429 or from 500 on;
broken and code, of the last error inside a stream; stalled, that a stream was ended because nothing but comments came;
survived, how many attempts failed that left their engine alive."""
ENDING_HEADER = "x-tidegate-ending"
"""What ``said`` says, on the answer of one attempt; taken away before the client sees it."""
HOST_TAG = "host"

DEADLINE_HEADER = "grpc-timeout"
"""In which a decision tells Envoy how long the whole request may take."""

UNREAD_NAMESPACE = "tidegate.unread"
UNREAD_KEY = "model"
"""Dynamic metadata in which Envoy leaves the model of a request that nobody decided on, where a pool fails open."""
