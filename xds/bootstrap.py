"""The bootstrap: what Envoy must know before it can ask Tidegate for the rest."""

from importlib import resources
from pathlib import Path
from string import Template

from tidegate.config import Config
from xds.tls import bootstrap_transport_socket

TEMPLATE = "bootstrap.yaml"


def template() -> str:
    """Return the text of the template: ``envoy/bootstrap.yaml`` of a source tree, or its copy in an installed wheel.

    Raises:
        FileNotFoundError: neither is there, so the installation is broken.
    """
    source = Path(__file__).parents[1] / "envoy" / TEMPLATE
    if source.is_file():
        return source.read_text(encoding="utf-8")
    return resources.files("tidegate").joinpath("templates", TEMPLATE).read_text(encoding="utf-8")


def render(config: Config, template: str, node_id: str = "envoy") -> str:
    """Fill ``template`` in with the addresses of ``config``; ``node_id`` is the name that Envoy gives in logs.

    Raises:
        KeyError, ValueError: the template asks for something else.
    """
    return Template(template).substitute(
        node_id=node_id,
        admin_address=config.envoy.admin_address,
        admin_port=config.envoy.admin_port,
        xds_address=config.control.reached_at,
        xds_port=config.control.xds_port,
        xds_transport_socket=bootstrap_transport_socket(config.control),
    )
