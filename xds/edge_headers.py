"""Taking out of requests what steers gateways and engines."""

from envoy_data_plane.envoy.config.common.mutation_rules import v3 as mutation_rules
from envoy_data_plane.envoy.config.core import v3 as core
from envoy_data_plane.envoy.extensions.http.early_header_mutation.header_mutation import v3 as early
from envoy_data_plane.envoy.type.matcher import v3 as matcher

from tidegate.control_headers import CONTROL_NAMES, CONTROL_PREFIXES
from xds.messages import extension

OBJECTIVE = "x-tidegate-objective"
"""The name of a request's objective, on its way from the edge to the decision."""

ASKED_BY = ("x-gateway-inference-objective", "x-llm-d-inference-objective")
"""The headers in which clients give it; the latter counts where there are both."""


def strip_control_headers(but: str | None = None) -> core.TypedExtensionConfig:
    """Return the mutation that takes them out before anything else, route and decision included, sees the request.

    ``but`` is the one in which a proxy in front says who asks, where one does. The objective that is asked for goes on
    under a name that no client can use, whether there are any now or not: a listener that changes ends connections.
    """
    matchers = [matcher.StringMatcher(prefix=prefix) for prefix in CONTROL_PREFIXES]
    return extension(
        "envoy.http.early_header_mutation.header_mutation",
        early.HeaderMutation(
            mutations=[
                *_objective(),
                *(
                    mutation_rules.HeaderMutation(
                        remove_on_match=mutation_rules.HeaderMutationRemoveOnMatch(key_matcher=key)
                    )
                    for key in matchers
                ),
                *(mutation_rules.HeaderMutation(remove=name) for name in CONTROL_NAMES if name != but),
            ]
        ),
    )


def _objective() -> list[mutation_rules.HeaderMutation]:
    return [
        mutation_rules.HeaderMutation(remove=OBJECTIVE),
        *(
            mutation_rules.HeaderMutation(
                append=core.HeaderValueOption(
                    header=core.HeaderValue(key=OBJECTIVE, value=f"%REQ({name})%"),
                    append_action=core.HeaderValueOptionHeaderAppendAction.OVERWRITE_IF_EXISTS_OR_ADD,
                )
            )
            for name in ASKED_BY
        ),
    ]
