"""How many files and sockets this process may have open at once."""

import resource

ENOUGH = 1_048_576


def raise_limit() -> None:
    """Allow ``ENOUGH``, or as many as we may allow ourselves, for this process and its children.

    The usual soft limit, 1024, is there for programs that call select(2). We hold a socket for each endpoint that is
    being asked for its load, and Envoy two for each request.
    """
    now, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = ENOUGH if most == resource.RLIM_INFINITY else min(ENOUGH, most)
    if now != resource.RLIM_INFINITY and now < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))
