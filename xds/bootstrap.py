"""The bootstrap: what Envoy must know before it can ask Tidegate for the rest."""

import json
from importlib import resources
from pathlib import Path
from string import Template

from tidegate.config import Config
from tidegate.config_envoys import NODE_CLUSTER, NODE_ID, Node
from xds import secrets
from xds.tls import bootstrap_transport_socket
from xds.type_urls import SECRET

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


def secret_files(config: Config) -> dict[str, str]:
    """Return by name the files from which Envoy takes what it shows to the control plane; none without TLS.

    They hold no key, but say where it is. Envoy reads keys and certificates again when new ones are renamed into place,
    which it does not where a bootstrap names them itself.
    """
    if config.control.tls is None:
        return {}
    files = config.control.tls.envoy
    made = (
        secrets.certificate_on_file(secrets.ENVOY_CERTIFICATE, files.certificate, files.key),
        secrets.authorities_on_file(secrets.ENVOY_CA, files.ca),
    )
    return {
        f"{secret.name}.json": json.dumps({"resources": [{"@type": SECRET, **secret.to_dict()}]}) for secret in made
    }


def render(config: Config, template: str, node: Node | None = None, secrets_folder: str | None = None) -> str:
    """Fill ``template`` in with the addresses of ``config``, and with what the Envoy says of itself.

    With ``secrets_folder`` Envoy finds ``secret_files`` there.

    Raises:
        KeyError, ValueError: the template asks for something else.
    """
    return Template(template).substitute(
        node=_written(node or Node(NODE_ID, NODE_CLUSTER)),
        admin_address=config.envoy.admin_address,
        admin_port=config.envoy.admin_port,
        xds_address=config.control.reached_at,
        xds_port=config.control.xds_port,
        xds_transport_socket=bootstrap_transport_socket(config.control, secrets_folder),
    )


def _written(node: Node) -> str:
    """Return ``node`` as Envoy's bootstrap has it; what is text in it may be anything."""
    said = {"id": node.id, "cluster": node.cluster, "metadata": dict(node.metadata)}
    return json.dumps({key: value for key, value in said.items() if value})
