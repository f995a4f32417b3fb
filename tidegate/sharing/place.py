"""Where Redis is."""

from typing import NamedTuple


class Place(NamedTuple):
    """Where Redis is, and what it wants to see; files are read for each connection.

    Attributes:
        host: name or IP address, looked up for each connection.
        port: its port.
        database: its number.
        tls: whether the connection is encrypted.
        username: the ACL user; ``None`` for the default one.
        password_file: the file that holds the password.
        password: the password, where it comes from elsewhere.
        ca: the file with the authorities that may have signed Redis's certificate; ``None`` for the system's.
        certificate: the file with our certificate, where Redis asks for one.
        key: the file with its key.
    """

    host: str
    port: int = 6379
    database: int = 0
    tls: bool = False
    username: str | None = None
    password_file: str | None = None
    password: str | None = None
    ca: str | None = None
    certificate: str | None = None
    key: str | None = None
