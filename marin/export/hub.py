"""An exported folder pushed to the Hugging Face Hub, and a pinned revision pulled from it, by huggingface_hub.

Where it goes is ``HF_ENDPOINT``, who asks is ``HF_TOKEN``, as everywhere with that library. A revision is pinned by its
commit: a branch can move. Of what is pulled only the files of a model are taken, and nothing of them is executed.
"""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from typing import Any

from marin.errors import MissingEvidence, UsageError

PREFIX = "hf:"
_NAMED = re.compile(r"^hf:([A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95})@([0-9a-f]{40})$")
FILES = ("config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json",
         "special_tokens_map.json", "chat_template.jinja", "README.md")  # fmt: skip
"""What of a repository is a model here."""


def is_named(name: str) -> bool:
    """Whether ``name`` is meant to be one of the Hub."""
    return name.startswith(PREFIX)


def push(folder: Path, repository: str, *, branch: str | None = None, message: str = "") -> str:
    """Commit the files of ``folder`` to ``repository``, which is made if it is not there. The commit.

    Raises:
        UsageError: the Hub refuses.
        MissingEvidence: it cannot be reached.
    """
    api = _api()

    def committed() -> str:
        api.create_repo(repository, exist_ok=True)
        if branch is not None:
            api.create_branch(repository, branch=branch, exist_ok=True)
        done = api.upload_folder(
            repo_id=repository,
            folder_path=folder,
            revision=branch,
            commit_message=message or "a model",
            allow_patterns=list(FILES),
        )
        return str(done.oid)

    return str(_asked(committed, repository))


def pull(name: str, cache: Path) -> Path:
    """The folder of ``hf:OWNER/NAME@COMMIT``, below ``cache``.

    Raises:
        UsageError: it is no such name, or the Hub has none.
        MissingEvidence: the Hub cannot be reached.
    """
    found = _NAMED.match(name)
    if found is None:
        raise UsageError(
            "a model of the Hub is pinned by its commit",
            where=name[:200],
            expected="hf:OWNER/NAME@COMMIT, 40 hexadecimal digits",
            found=name[:200],
            cure="a branch can move: name the commit that it is at",
        )
    repository, commit = found.groups()
    base = cache / repository.replace("/", "--") / commit
    folder = base / "model"
    if folder.is_dir():  # a commit never changes
        return folder
    api = _api()
    _asked(
        lambda: api.snapshot_download(
            repository, revision=commit, local_dir=base / "download", allow_patterns=list(FILES)
        ),
        repository,
    )
    made = base / f"made.{os.getpid()}"  # without the library's own files, whole or not at all
    made.mkdir()
    for name in FILES:
        if (base / "download" / name).is_file():
            (base / "download" / name).rename(made / name)
    made.rename(folder)
    shutil.rmtree(base / "download", ignore_errors=True)
    return folder


def _api() -> Any:
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    from huggingface_hub import HfApi  # a third of a second

    return HfApi(endpoint=os.environ.get("HF_ENDPOINT"), token=os.environ.get("HF_TOKEN") or False)


def _asked(work: Any, repository: str) -> object:
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
