"""The Hugging Face Hub, by huggingface_hub: where it is (``HF_ENDPOINT``), who asks (``HF_TOKEN``), what it refuses, and which
files a commit of a repository has. A revision is pinned by its commit: a branch can move."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import quote

from marin.data.network.fetching import Pinned
from marin.data.reach import check_address
from marin.errors import MissingEvidence, UsageError

PREFIX = "hf:"
NAME = r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}"
COMMIT = r"[0-9a-f]{40}"
_ADDRESS = re.compile(rf"^{PREFIX}(datasets/)?({NAME})@({COMMIT})(?:/(.+))?$")
DEFAULT = "https://huggingface.co"


@dataclass(frozen=True)
class Repository:
    """A repository at a commit."""

    kind: Literal["model", "dataset"]
    name: str
    commit: str

    @property
    def address(self) -> str:
        """As it is named here."""
        return f"{PREFIX}{'datasets/' if self.kind == 'dataset' else ''}{self.name}@{self.commit}"


def parse(address: str) -> tuple[Repository, str]:
    """The repository of ``hf:[datasets/]OWNER/NAME@COMMIT[/PATH]``, and the path.

    Raises:
        UsageError: it is not such an address.
    """
    found = _ADDRESS.match(address)
    if found is None:
        raise UsageError(
            "a repository of the Hub is pinned by its commit",
            where=address[:200],
            expected="hf:OWNER/NAME@COMMIT or hf:datasets/OWNER/NAME@COMMIT/PATH, a commit of 40 hexadecimal digits",
            found=address[:200],
            cure="a branch can move: name the commit that it is at",
        )
    dataset, name, commit, path = found.groups()
    return Repository("dataset" if dataset else "model", name, commit), path or ""


def files(repository: Repository) -> dict[str, Pinned]:
    """The files of a repository by their paths, each with what its bytes hash to.

    Raises:
        DataMissing: the Hub may not be asked (:mod:`marin.data.reach`).
        UsageError: it refuses.
        MissingEvidence: it cannot be reached.
    """
    endpoint = os.environ.get("HF_ENDPOINT") or DEFAULT
    check_address(endpoint)
    listed = hub_call(
        lambda: list(
            api().list_repo_tree(repository.name, recursive=True, revision=repository.commit, repo_type=repository.kind)
        ),
        repository.address,
    )
    token = os.environ.get("HF_TOKEN")
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    base = (
        f"{endpoint}/{'datasets/' if repository.kind == 'dataset' else ''}{repository.name}/resolve/{repository.commit}"
    )
    found: dict[str, Pinned] = {}
    for entry in listed:
        if (size := getattr(entry, "size", None)) is None:
            continue  # a folder
        large = entry.lfs
        digest = f"sha256:{large.sha256}" if large is not None else f"git-sha1:{entry.blob_id}"
        found[entry.path] = Pinned((f"{base}/{quote(entry.path)}",), int(size), digest, headers)
    return found


def branches(repository: str) -> dict[str, str]:
    """The commit that each branch of a model's repository is at.

    Raises:
        UsageError: the Hub refuses.
        MissingEvidence: it cannot be reached.
    """
    listed = hub_call(lambda: api().list_repo_refs(repository).branches, repository)
    return {branch.name: branch.target_commit for branch in listed}


def api() -> Any:
    """The library's client."""
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    from huggingface_hub import HfApi  # a third of a second

    return HfApi(endpoint=os.environ.get("HF_ENDPOINT"), token=os.environ.get("HF_TOKEN") or False)


def hub_call[T](work: Callable[[], T], repository: str) -> T:
    """What ``work`` gives, the library's errors as ours.

    Raises:
        UsageError: the Hub refuses.
        MissingEvidence: it cannot be reached.
    """
    import httpx
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        return work()
    except (LocalEntryNotFoundError, httpx.TransportError, OSError) as error:
        if isinstance(error, HfHubHTTPError):
            raise UsageError(
                "the Hub refuses",
                where=repository,
                expected="a repository and a token that may do this",
                found=" ".join(str(error).split())[:300],
                cure="set HF_TOKEN, or name another repository",
            ) from None
        raise MissingEvidence(
            "the Hub cannot be reached",
            where=os.environ.get("HF_ENDPOINT", "the Hub"),
            expected="an answer",
            found=f"{type(error).__name__}: {' '.join(str(error).split())[:200]}",
            cure="try again where there is a network, or name a folder",
        ) from None
    except (HfHubHTTPError, HFValidationError, ValueError) as error:
        raise UsageError(
            "the Hub refuses", where=repository, expected="OWNER/NAME", found=" ".join(str(error).split())[:300]
        ) from None
