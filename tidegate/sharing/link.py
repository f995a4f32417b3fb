"""One connection to Redis, and the script on it. Needs ``tidegate[redis]``."""

import contextlib
from collections.abc import Sequence
from typing import Any, Final

from redis import exceptions
from redis.asyncio.connection import Connection, SSLConnection

from tidegate import regular_file
from tidegate.sharing.errors import LinkError
from tidegate.sharing.operations import SCRIPT, SHA
from tidegate.sharing.place import Place

REASONS: Final[tuple[tuple[type[Exception], str], ...]] = (
    (exceptions.ReadOnlyError, "read-only"),
    (exceptions.OutOfMemoryError, "out of memory"),
    (exceptions.NoPermissionError, "no permission"),
    (exceptions.AuthenticationError, "not let in"),
    (exceptions.BusyLoadingError, "loading"),
    (exceptions.TimeoutError, "timeout"),
    (TimeoutError, "timeout"),
    (exceptions.ConnectionError, "no connection"),
    (OSError, "no connection"),
    (exceptions.ResponseError, "error"),
)


def reason_of(error: BaseException) -> LinkError:
    """Return what to say of ``error``."""
    if isinstance(error, LinkError):
        return error
    if "unauthenticated" in str(error):  # what Redis says of a long command before the password
        return LinkError("not let in", str(error))
    found = next((reason for kind, reason in REASONS if isinstance(error, kind)), "error")
    return LinkError(found, str(error))


class Link:
    """One connection. Every method may take for ever: whoever calls bounds it, and closes the link after a failure."""

    def __init__(self, place: Place, keys: Sequence[str], connect_seconds: float) -> None:
        """Connect to ``place`` once opened, within ``connect_seconds``; the script works on ``keys``."""
        self._place = place
        self._keys = keys
        self._connect_seconds = connect_seconds
        self._connection: Connection | None = None

    async def open(self) -> None:
        """Connect.

        Raises:
            LinkError: that did not succeed.
        """
        place = self._place
        try:
            password = place.password
            if place.password_file is not None:
                password = regular_file.read(place.password_file).decode().strip()
            common: dict[str, Any] = {
                "host": place.host,
                "port": place.port,
                "db": place.database,
                "username": place.username,
                "password": password,
                "protocol": 2,
                # The deadline is the caller's. This one bounds what a disconnect waits for.
                "socket_timeout": None,
                "socket_connect_timeout": self._connect_seconds,
                "driver_info": None,
            }
            if place.tls:
                for path in filter(None, (place.ca, place.certificate, place.key)):
                    regular_file.read(path)  # what is no file is an error, and not waited at
                self._connection = SSLConnection(
                    **common, ssl_ca_certs=place.ca, ssl_certfile=place.certificate, ssl_keyfile=place.key
                )
            else:
                self._connection = Connection(**common)
            await self._connection.connect()  # type: ignore[no-untyped-call]
        except Exception as error:  # noqa: BLE001  whatever the client makes of what is there: it is no Redis for us
            raise reason_of(error) from None

    async def call(self, arguments: Sequence[str | bytes]) -> object:
        """Run the script with ``arguments``, and return its answer.

        Raises:
            LinkError: Redis said why not, or is gone.
        """
        connection = self._connection
        if connection is None:
            raise LinkError("no connection")
        asked = (len(self._keys), *self._keys, *arguments)
        try:
            try:
                await connection.send_command("EVALSHA", SHA, *asked)
                return await connection.read_response()
            except exceptions.NoScriptError:
                # It stays there until the next restart or SCRIPT FLUSH.
                await connection.send_command("EVAL", SCRIPT, *asked)
                return await connection.read_response()
        except Exception as error:  # noqa: BLE001  likewise
            raise reason_of(error) from None

    async def close(self) -> None:
        """Drop the connection, without a word to the other side. Never raises."""
        if self._connection is not None:
            connection, self._connection = self._connection, None
            with contextlib.suppress(Exception):
                await connection.disconnect(nowait=True)
