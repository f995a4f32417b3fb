"""Upper bounds of the histograms' buckets, in seconds.

The first three are those of vLLM's histograms of the same quantities (``vllm:time_to_first_token_seconds``,
``vllm:request_time_per_output_token_seconds`` and ``vllm:e2e_request_latency_seconds`` of vLLM 0.32), so that quantiles
here and there compare. Left out are bounds that only a stuck request would reach; added are 2.5 and 5 ms per token,
where small models are.
"""

TTFT_BUCKETS = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75),
    *(1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0),
)
TPOT_BUCKETS = (
    *(0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75),
    *(1.0, 2.5, 5.0),
)
DURATION_BUCKETS = (
    *(0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0),
    *(120.0, 240.0, 480.0, 960.0, 1920.0),
)

DECISION_BUCKETS = (0.00001, 0.000025, 0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01)
"""From the choice between a handful of endpoints to that between several thousand."""

COUNT_BUCKETS = (0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5)
"""From a short prompt, counted at once, to beyond the longest that a count is waited for (0.25 s)."""

SCRAPE_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
"""From a page served on the same host to well beyond the usual deadline of a scrape."""
