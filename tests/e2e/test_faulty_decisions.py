"""A decision that fails by a fault of ours, behind a real Envoy: an error, and never a way past us."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import aiohttp
import pytest

from tests.e2e.gateway import Control, Decider, Engine, Gateway, config_for, view
from tests.envoy_process import running_envoy
from tests.extproc.desks import FakeDesk
from tests.extproc.h2_client import Counts
from tests.ports import free_port
from tidegate.runtime import services
from tidegate.scheduling.dispatch import Decision, Refusal
from tidegate.scheduling.request import InferenceRequest
from xds import bootstrap, build

CHAT = b'{"model": "m", "messages": [{"role": "user", "content": "hello"}]}'


class FaultyDesk(FakeDesk, Counts):
    """Fails at every request."""

    def __init__(self) -> None:
        FakeDesk.__init__(self)
        Counts.__init__(self)

    def decide(self, request: InferenceRequest) -> Decision | Refusal:
        """Fail."""
        self.requests.append(request)
        raise RuntimeError("a secret of ours")


@pytest.fixture(params=["grpc", "h2"])
async def failing(request: pytest.FixtureRequest) -> AsyncIterator[tuple[Gateway, FaultyDesk]]:
    engines = (Engine(free_port()), Engine(free_port()))
    plain = config_for(engines)
    config = plain.model_copy(
        update={"control": plain.control.model_copy(update={"ext_proc_transport": request.param})}
    )
    control, desk = Control(config.control.xds_port), FaultyDesk()
    addresses = tuple(engine.address for engine in engines)
    async with AsyncExitStack() as stack:
        for engine in engines:
            await stack.enter_async_context(engine.serving())
        await stack.enter_async_context(services.ext_proc(config.control, config.control.ext_proc_port, desk))
        await control.start(build.snapshot(config, [view("small", *addresses), view("large", *addresses)]))
        stack.push_async_callback(control.stop)
        text = bootstrap.render(config, bootstrap.template())
        envoy = await stack.enter_async_context(running_envoy(text, config.envoy.admin_port))
        session = await stack.enter_async_context(aiohttp.ClientSession())
        unused = Decider(config.control.ext_proc_port)
        yield Gateway(config, control, unused, engines, envoy, session), desk


async def test_a_decision_that_raises_is_an_error_and_reaches_no_engine(failing: tuple[Gateway, FaultyDesk]) -> None:
    gateway, desk = failing
    url = f"http://127.0.0.1:{gateway.config.listener.port}/v1/chat/completions"
    for _ in range(5):
        async with gateway.session.post(url, data=CHAT, headers={"content-type": "application/json"}) as response:
            text = await response.text()
            assert response.status == 503
            assert response.content_type == "application/json"
            assert "secret" not in text
            assert "RuntimeError" not in text
    assert len(desk.requests) == 5, "what fails by a fault of ours is not tried again and again"
    assert [engine.seen for engine in gateway.engines] == [[], []]
    assert desk.started == len(desk.ended) == 5
