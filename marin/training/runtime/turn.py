"""Of processes that begin together one compiles, and the others find its programs."""

from __future__ import annotations

import fcntl
import logging
from collections.abc import Iterator
from contextlib import contextmanager

from marin.process.cache import own_folder

logger = logging.getLogger(__name__)


@contextmanager
def compiling(name: str) -> Iterator[None]:
    """While entered, the only process of this user on this machine that compiles what is called ``name``. Of several
    that begin together one compiles, on all cores, and the others then find its programs."""
    with (own_folder("compiling") / name).open("w") as held:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            logger.info("waiting for another process, which compiles the same programs")
            fcntl.flock(held, fcntl.LOCK_EX)
        yield
