"""What a step is given: another step's output, or one file of it, as the ledger names it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ledger import NotFound, Store
from marin.errors import UsageError


@dataclass(frozen=True)
class ResolvedInput:
    """An input, by digest. ``path`` is one file of a tree, "" for all of it."""

    digest: str
    artifact: str
    kind: str
    metrics: Mapping[str, float] = field(default_factory=dict)
    run: str = ""
    path: str = ""
    tables: Mapping[str, str] = field(default_factory=dict)


def file_digest(store: Store, artifact: str, path: str, address: str) -> str:
    """The digest of one file of a tree; :class:`UsageError` when it has no such file."""
    try:
        manifest = store.manifest(artifact)
    except NotFound:
        raise UsageError(
            "a missing input",
            where=f"{address}: {path}",
            expected="a step whose output is a folder of files",
            found="a single value",
            cure="take the whole output as the input",
        ) from None
    for entry in manifest:
        if entry.path == path:
            return entry.digest
    names = ", ".join(entry.path for entry in list(manifest)[:6])
    raise UsageError(
        "a missing input",
        where=f"{address}: {path}",
        expected=f"a file of the output: {names}",
        found="no such file",
        cure="correct the name in step.file(...)",
    )
