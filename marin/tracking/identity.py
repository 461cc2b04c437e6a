"""MLflow's identifiers and creation times, derived from the ledger instead of drawn.

A projection that is deleted and folded again has to answer every query as before, and a link to a run's page has to
keep working. MLflow draws run, model and data set ids from ``uuid.uuid4`` and creation times from the clock inside its
stores, and offers no parameter for either. So the two store modules are given stand-ins for these two names, once; the
stand-ins pass everything through, except on the thread and for the time of :func:`derived`, where they answer from the
key. The server's own handlers in the same process are not affected.
"""

from __future__ import annotations

import hashlib
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from types import ModuleType

from marin.errors import MarinError


def mlflow_id(origin: str, *parts: str) -> str:
    """32 hexadecimal digits for a thing of the ledger ``origin``: a run, a step of a run, a model."""
    return hashlib.sha256("\n".join(("marin.mlflow/v1", origin, *parts)).encode()).hexdigest()[:32]


@dataclass
class _Scope:
    key: str
    milliseconds: int
    drawn: int = 0

    def next(self) -> uuid.UUID:
        name = self.key if self.drawn == 0 else mlflow_id(self.key, str(self.drawn))
        self.drawn += 1
        return uuid.UUID(hex=name)


_scope: ContextVar[_Scope | None] = ContextVar("marin.tracking.identity", default=None)


class _Uuid:
    """Stands in for the module ``uuid`` in MLflow's stores, which use ``uuid4`` alone."""

    UUID = uuid.UUID

    @staticmethod
    def uuid4() -> uuid.UUID:
        scope = _scope.get()
        return uuid.uuid4() if scope is None else scope.next()


def _milliseconds() -> int:
    scope = _scope.get()
    return int(time.time() * 1000) if scope is None else scope.milliseconds


def install(*modules: ModuleType) -> None:
    """Give MLflow's store modules the stand-ins. Does nothing the second time.

    Raises:
        MarinError: a module has not the names that this was written for: another MLflow than the pinned one.
    """
    for module in modules:
        for name, stand_in in (("uuid", _Uuid), ("get_current_time_millis", _milliseconds)):
            if name not in vars(module):
                raise MarinError("MLflow is of a version that the projection does not know", where=module.__name__,
                                 expected=f"a name {name}", found="none",
                                 cure="install the version pinned in requirements.lock")
            setattr(module, name, stand_in)


@contextmanager
def derived(key: str, milliseconds: int) -> Iterator[None]:
    """Inside, MLflow's first new id is ``key`` itself, later ones follow from it, and the time stands still."""
    token = _scope.set(_Scope(key, milliseconds))
    try:
        yield
    finally:
        _scope.reset(token)
