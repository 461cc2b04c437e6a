"""An exported folder pushed to the Hugging Face Hub, and a pinned revision pulled from it, by huggingface_hub.

Where it goes is ``HF_ENDPOINT``, who asks is ``HF_TOKEN``, as everywhere with that library. A revision is pinned by its
commit: a branch can move. Of what is pulled only the files of a model are taken, and nothing of them is executed.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from marin.data.network.hub import PREFIX, api, asked, parse
from marin.errors import UsageError

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
    hub = api()

    def committed() -> str:
        hub.create_repo(repository, exist_ok=True)
        if branch is not None:
            hub.create_branch(repository, branch=branch, exist_ok=True)
        done = hub.upload_folder(
            repo_id=repository,
            folder_path=folder,
            revision=branch,
            commit_message=message or "a model",
            allow_patterns=list(FILES),
        )
        return str(done.oid)

    return asked(committed, repository)


def pull(name: str, cache: Path, files: Sequence[str] = FILES, kind: str = "model") -> Path:
    """The folder of ``hf:OWNER/NAME@COMMIT``, below ``cache``; of its ``files`` those that a ``kind`` of thing has.

    Raises:
        UsageError: it is no such name, or the Hub has none.
        MissingEvidence: the Hub cannot be reached.
    """
    named, path = parse(name)
    if named.kind != "model" or path:
        raise UsageError(
            "a model is a whole repository of the Hub",
            where=name[:200],
            expected="hf:OWNER/NAME@COMMIT",
            found=name[:200],
            cure="leave out the path; a data set is a source of `marin data build`",
        )
    repository, commit = named.name, named.commit
    base = cache / repository.replace("/", "--") / commit
    folder = base / kind
    if folder.is_dir():  # a commit never changes
        return folder
    hub = api()
    asked(
        lambda: hub.snapshot_download(
            repository, revision=commit, local_dir=base / "download", allow_patterns=list(files)
        ),
        repository,
    )
    made = base / f"made.{os.getpid()}"  # without the library's own files, whole or not at all
    made.mkdir()
    for name in files:
        if (base / "download" / name).is_file():
            (made / name).parent.mkdir(parents=True, exist_ok=True)
            (base / "download" / name).rename(made / name)
    made.rename(folder)
    shutil.rmtree(base / "download", ignore_errors=True)
    return folder
