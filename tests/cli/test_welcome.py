"""What ``tidegate up`` prints once everything runs."""

import json
import re
import shlex
from pathlib import Path
from typing import Any

from aiohttp import web
from aiohttp.test_utils import TestServer

from tests.ports import free_port
from tidegate.cli import _welcome
from tidegate.config import Config
from tidegate.config_tls import ListenerTls
from tidegate.runtime import demo

FILE = Path("fleet.yaml")


def config(*addresses: str, models: tuple[str, ...] = ("*",)) -> Config:
    endpoints = tuple({"address": address} for address in addresses)
    return Config.model_validate({"pools": ({"name": "p", "models": models, "endpoints": endpoints},)})


async def serving(body: object) -> TestServer:
    async def models(_: web.Request) -> web.Response:
        return web.json_response(body)

    app = web.Application()
    app.router.add_get("/v1/models", models)
    server = TestServer(app)
    await server.start_server()
    return server


def bodies(text: str) -> list[Any]:
    return [json.loads(shlex.split(line)[-1]) for line in re.findall(r"^  (curl .* -d .*)$", text, re.MULTILINE)]


async def test_the_model_to_try_is_one_that_the_configuration_names() -> None:
    assert await _welcome.model(config("127.0.0.1:1", models=("llama-*", "qwen"))) == "qwen"


async def test_where_the_configuration_names_none_an_engine_is_asked() -> None:
    server = await serving({"object": "list", "data": [{"id": "what/it-serves", "object": "model"}]})
    try:
        dead = f"127.0.0.1:{free_port()}"
        assert await _welcome.model(config(dead, f"127.0.0.1:{server.port}")) == "what/it-serves"
    finally:
        await server.close()


async def test_an_engine_that_does_not_say_leaves_a_placeholder_that_is_explained() -> None:
    server = await serving({"data": "nothing of the kind"})
    try:
        of = config(f"127.0.0.1:{server.port}")
        assert await _welcome.model(of) == "MODEL"
    finally:
        await server.close()
    assert "with the name of a model in place of MODEL" in _welcome.text(of, FILE, "MODEL", simulated=False)


def test_every_address_and_the_file_are_named() -> None:
    of = config("10.0.0.1:8000", "[fd00::7]:8000")
    text = _welcome.text(of, FILE, "qwen", simulated=False)
    for said in (":8080", ":9090", ":9901", ":18000", ":18001", "10.0.0.1:8000", "[fd00::7]:8000", "fleet.yaml"):
        assert said in text


def test_the_ports_are_told_with_what_comes_there() -> None:
    alone, several = config("10.0.0.1:8000"), config("10.0.0.1:8000")
    several = several.model_copy(update={"control": several.control.model_copy(update={"workers": 2})})
    assert "18000 (discovery), 127.0.0.1:18001 (decisions, access log)" in _welcome.text(
        alone, FILE, "q", simulated=False
    )
    told = "18000 (discovery, access log), 127.0.0.1:18001, 127.0.0.1:18002 (decisions)"
    assert told in _welcome.text(several, FILE, "q", simulated=False)


def test_what_is_pasted_survives_the_shell_whatever_the_model_is_called() -> None:
    name = 'it\'s $HOME `x` "quoted"'
    plain, streamed = bodies(_welcome.text(config("127.0.0.1:1"), FILE, name, simulated=False))
    assert plain["model"] == streamed["model"] == name
    assert streamed["stream"] is True


def test_the_speeds_of_the_simulated_engines_are_told() -> None:
    addresses = [f"127.0.0.1:{engine.port}" for engine in demo.ENGINES]
    text = _welcome.text(config(*addresses), FILE, "qwen", simulated=True)
    assert "127.0.0.1:8001   (simulated h100)" in text
    assert "127.0.0.1:8004   (simulated rtx4090)" in text
    assert "simulated" not in _welcome.text(config(*addresses), FILE, "qwen", simulated=False)


def test_a_large_fleet_does_not_fill_the_screen() -> None:
    of = config(*(f"10.0.{number}.1:8000" for number in range(100)))
    assert "and 80 more" in (text := _welcome.text(of, FILE, "qwen", simulated=False))
    assert text.count("\n") < 40


def test_over_tls_the_commands_say_what_has_to_be_trusted_and_shown() -> None:
    files = {"certificate": "/e/tls.crt", "key": "/e/tls.key", "read_by": "envoy"}
    for more, shown in ({}, False), ({"client_ca": "/e/ca.crt", "client_certificate": "required"}, True):
        of = config("10.0.0.1:8000")
        tls = ListenerTls.model_validate({**files, **more})
        of = of.model_copy(update={"listener": of.listener.model_copy(update={"tls": tls})})
        text = _welcome.text(of, FILE, "qwen", simulated=False)
        assert "with the authority of /e/tls.crt in place of CA.pem" in text
        asks = re.findall(r"^  (curl .* -d .*)$", text, re.MULTILINE)
        assert len(asks) == 2
        assert all(" --cacert CA.pem " in ask and " https://127.0.0.1:8080/v1/" in ask for ask in asks)
        assert all((" --cert CLIENT.pem --key CLIENT.key " in ask) is shown for ask in asks)
