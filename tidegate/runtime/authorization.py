"""Who may call what, by the role that a certificate gives its bearer: asked before every call, of each of four kinds.

What is not listed here nobody may call.
"""

import functools
import inspect
import logging
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeAlias

import grpc
import grpc.aio

from extproc.transport import SERVICE as EXT_PROC
from tidegate.certificates import alternative_uris
from tidegate.config_tls import ServerTls
from tidegate.health.agents import SERVICE as AGENTS
from tidegate.roles import Peer, Role, peer
from tidegate.telemetry import access_log
from tidegate.telemetry.log import event
from xds.services import SERVICES

logger = logging.getLogger("tidegate.authorization")

HEALTH: Final = "grpc.health.v1.Health"

MAY_CALL: Final[Mapping[str, frozenset[Role]]] = {
    **{service.name: frozenset({Role.ENVOY}) for service in SERVICES},
    EXT_PROC: frozenset({Role.ENVOY}),
    access_log.SERVICE: frozenset({Role.ENVOY}),
    AGENTS: frozenset({Role.AGENT}),
    HEALTH: frozenset(Role),
}
"""The roles that may call a service."""

MAX_SAID: Final = 100
"""Callers of whom it is said in the log that they were turned away."""

_Context = grpc.aio.ServicerContext[Any, Any]
if TYPE_CHECKING:
    _Handler: TypeAlias = grpc.RpcMethodHandler[Any, Any]
else:  # which is not generic at run time
    _Handler = grpc.RpcMethodHandler


def caller(context: _Context, trust_domain: str) -> Peer | None:
    """Return who calls; ``None`` for somebody without a role."""
    return peer([uri.decode("utf-8", "replace") for uri in context.auth_context().get("peer_uri", ())], trust_domain)


def is_envoy(connection: ssl.SSLObject, trust_domain: str) -> bool:
    """Return whether an Envoy is at the other end of ``connection``."""
    found = peer(alternative_uris(connection.getpeercert()), trust_domain)
    return found is not None and found.role is Role.ENVOY


def admits(tls: ServerTls | None) -> Callable[[ssl.SSLObject], bool] | None:
    """Return what says whether a peer may ask for decisions; ``None`` where everybody may who gets a connection."""
    if tls is None or tls.trust_domain is None:
        return None
    return functools.partial(is_envoy, trust_domain=tls.trust_domain)


def interceptors(tls: ServerTls | None) -> "Sequence[ByRole]":
    """Return what stands before every call; nothing where everybody may call who gets a connection."""
    return () if tls is None or tls.trust_domain is None else (ByRole(tls.trust_domain),)


def named(tls: ServerTls | None) -> Callable[[_Context], str]:
    """Return what says which node id an Envoy must give itself; empty for any."""
    if tls is None or tls.trust_domain is None:
        return lambda _: ""
    trust_domain = tls.trust_domain

    def name(context: _Context) -> str:
        found = caller(context, trust_domain)
        return "" if found is None else found.name

    return name


class ByRole(grpc.aio.ServerInterceptor):
    """Turns away who has not the role that a service asks for."""

    def __init__(self, trust_domain: str) -> None:
        """Roles are those of ``trust_domain``."""
        self._trust_domain = trust_domain
        self._said: set[tuple[str, str]] = set()

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[_Handler | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> _Handler | None:
        """Return the handler of a call, which asks first who calls."""
        handler = await continuation(handler_call_details)
        if handler is None:
            return None  # there is no such method, which is answered as such
        service = str(handler_call_details.method).split("/")[1]

        async def ask(context: _Context) -> None:
            found = caller(context, self._trust_domain)
            if found is None or found.role not in MAY_CALL.get(service, ()):
                await self._refuse(context, service, found)

        return _guarded(handler, ask)

    async def _refuse(self, context: _Context, service: str, found: Peer | None) -> NoReturn:
        who = "nobody" if found is None else found.role.value
        if (who, service) not in self._said and len(self._said) < MAX_SAID:
            self._said.add((who, service))
            address = str(context.peer())
            event(logger, "a caller is turned away", level=logging.WARNING, role=who, service=service, first=address)
        await context.abort(grpc.StatusCode.PERMISSION_DENIED, "the certificate does not give the role that this takes")
        raise AssertionError("unreachable: abort raises")


def _guarded(handler: _Handler, ask: Callable[[_Context], Awaitable[None]]) -> _Handler:
    """Return ``handler``, of whichever kind, behind ``ask``."""
    forms = (handler.request_deserializer, handler.response_serializer)
    kinds: dict[tuple[bool, bool], tuple[Any, Callable[..., _Handler]]] = {
        (False, False): (handler.unary_unary, grpc.unary_unary_rpc_method_handler),
        (False, True): (handler.unary_stream, grpc.unary_stream_rpc_method_handler),
        (True, False): (handler.stream_unary, grpc.stream_unary_rpc_method_handler),
        (True, True): (handler.stream_stream, grpc.stream_stream_rpc_method_handler),
    }
    serve, made = kinds[bool(handler.request_streaming), bool(handler.response_streaming)]
    if inspect.isasyncgenfunction(serve):

        async def yielding(request: Any, context: _Context) -> AsyncIterator[Any]:
            await ask(context)
            async for response in serve(request, context):
                yield response

        return made(yielding, *forms)

    async def answering(request: Any, context: _Context) -> Any:
        await ask(context)
        return await serve(request, context)

    return made(answering, *forms)
