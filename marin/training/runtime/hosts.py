"""Several processes that train as one: who they are, and what they must agree on.

Each process holds some of the devices (jax.distributed); all of them execute the same programs in the same order. One
of them, number 0, leads: it alone writes to the ledger and to the store. What only the leader can know, because it
read it there, the others are told (:func:`broadcast`). Alone, a process leads itself and nothing is sent.
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils
from levanter.utils.jax_utils import multihost_allgather_sync, multihost_broadcast_sync

from ledger import Unavailable

PATIENCE_SECONDS = 3600
"""How long processes wait for each other where one reads, hashes or uploads and the others do not, and how long one may
be silent (frozen, or on a busy machine) before the others count it as dead. A process that died is noticed by anyone who
started them, long before that."""


def join(coordinator: str, count: int, number: int) -> None:
    """Make this process number ``number`` of ``count``, before jax looks for devices. Number 0 listens at
    ``coordinator`` (``address:port``), and there only."""
    if count == 1:
        return
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    # Levanter's loss asks all processes what they chose and waits 200 s for the last of them; it has no setting for it.
    multihost_allgather_sync.__defaults__ = (float(PATIENCE_SECONDS),)
    jax.distributed.initialize(
        coordinator,
        count,
        number,
        coordinator_bind_address=coordinator,
        initialization_timeout=PATIENCE_SECONDS,
        heartbeat_timeout_seconds=PATIENCE_SECONDS,
        shutdown_timeout_seconds=PATIENCE_SECONDS,
    )


def leave() -> None:
    """Wait until all processes are done, and end the group."""
    if jax.process_count() > 1:
        jax.distributed.shutdown()


def leader() -> bool:
    """Whether this process is the one that records."""
    return jax.process_index() == 0


def processes() -> int:
    """How many processes train as one."""
    return jax.process_count()


def broadcast(value: Any) -> Any:
    """The leader's ``value`` (of JSON's types) in every process; all of them must call this."""
    return value if jax.process_count() == 1 else multihost_broadcast_sync(value, timeout=PATIENCE_SECONDS)


def whole(array: jax.Array | np.ndarray) -> np.ndarray:
    """An array that lies on the devices of all processes, on this host; all processes must call this."""
    if isinstance(array, jax.Array) and not array.is_fully_addressable:
        return np.asarray(multihost_utils.process_allgather(array, tiled=True))
    return np.asarray(array)


# Words between processes that go past the devices: any thread may send and wait for them, whatever the others compute.

_PIECE = 2**20
"""Bytes of a word that travel at once; the service's messages have a limit of 4 MiB."""


def say(name: str, word: bytes) -> None:
    """Leave a word for the others under a name that is used once."""
    service = _service()
    pieces = [word[start : start + _PIECE] for start in range(0, len(word), _PIECE)] or [b""]
    for number, piece in enumerate(pieces):
        service.key_value_set_bytes(f"marin/{name}/{number}", len(pieces).to_bytes(4) + piece)


def hear(name: str) -> bytes:
    """The word that some process says under a name; waits for it.

    Raises:
        Unavailable: nobody said it for an hour.
    """
    service, count = _service(), 1
    found: list[bytes] = []
    while len(found) < count:
        try:
            piece = service.blocking_key_value_get_bytes(f"marin/{name}/{len(found)}", PATIENCE_SECONDS * 1000)
        except jax.errors.JaxRuntimeError as error:
            raise Unavailable(
                "another process of the training said nothing",
                where=name,
                expected=f"a word within {PATIENCE_SECONDS} s",
                found=" ".join(str(error).split())[:200],
                cure="run the same command again: it goes on from the last training checkpoint",
            ) from error
        count = int.from_bytes(piece[:4])
        found.append(piece[4:])
    return b"".join(found)


def forget(name: str) -> None:
    """Nobody needs a word any more."""
    _service().key_value_delete(f"marin/{name}/")


def _service() -> Any:
    from jax._src import distributed  # the one way to it; Levanter takes it too

    return distributed.global_state.client
