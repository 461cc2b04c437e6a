"""Where processes that compute as one meet (jax.distributed): an address of the first one's machine."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def held_address(here: str) -> Iterator[str]:
    """An address of this machine for a server of this user that is still to start. Meanwhile nobody else gets it: it is
    bound here, without listening, in the way that lets a gRPC server of the same user bind it too (SO_REUSEPORT)."""
    with socket.socket(socket.AF_INET6 if ":" in here else socket.AF_INET) as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        held.bind((here, 0))
        port = held.getsockname()[1]
        yield f"[{here}]:{port}" if ":" in here else f"{here}:{port}"
