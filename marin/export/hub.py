"""An exported folder pushed to the Hugging Face Hub, and a pinned revision pulled from it, by huggingface_hub.

Where it goes is ``HF_ENDPOINT``, who asks is ``HF_TOKEN``, as everywhere with that library. A revision is pinned by its
commit: a branch can move. Of what is pulled only the files of a model are taken, and nothing of them is executed.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from marin.data.network.fetching import Pinned
from marin.data.network.hub import PREFIX, Repository, api, branches, files, hub_call, parse
from marin.errors import UsageError

FILES = (
    "config.json",
    "generation_config.json",
    "model.safetensors",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "chat_template.jinja",
    "README.md",
)
"""What of a repository is a model here."""

MAIN = "main"
"""The branch that a repository begins with."""


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

    return hub_call(committed, repository)


def push_revisions(folders: Mapping[str, Path], repository: str, *, message: str) -> Iterator[tuple[str, str]]:
    """Push each of ``folders`` to the branch of its name, ``main`` last: name and commit, as soon as it is there. A branch that
    has these files already stays as it is, so who broke off calls again. No branch is touched unless all may be.

    Raises:
        UsageError: a branch has one of the files with other bytes, or the Hub refuses.
        MissingEvidence: it cannot be reached.
    """
    hub_call(lambda: api().create_repo(repository, exist_ok=True), repository)
    heads = branches(repository)
    there = {name for name, folder in folders.items() if name in heads and _holds(folder, repository, name, heads)}
    for name in sorted(folders, key=lambda name: name == MAIN):
        if name in there:
            yield name, heads[name]
        else:
            branch = None if name == MAIN else name
            yield name, push(folders[name], repository, branch=branch, message=f"{message}, {name}")


def _holds(folder: Path, repository: str, branch: str, heads: Mapping[str, str]) -> bool:
    """Whether the branch has the files of ``folder``; not so if some are lacking, or if the branch was only made.

    Raises:
        UsageError: it has one of them with other bytes.
    """
    found = files(Repository("model", repository, heads[branch]))
    wanted = sorted(path for path in folder.iterdir() if path.name in FILES)
    other = [path for path in wanted if path.name in found and not _is(path, found[path.name])]
    if not other:
        return all(path.name in found for path in wanted)
    if branch != MAIN and heads[branch] == heads.get(MAIN):
        return False  # a branch begins where main is, and nothing was pushed to it
    raise UsageError(
        "the branch has another model",
        where=f"{repository}, branch {branch}",
        expected=f"no {other[0].name}, or the bytes of {other[0]}",
        found=found[other[0].name].digest,
        cure="name another repository, or delete the branch there",
    )


def _is(path: Path, pinned: Pinned) -> bool:
    if path.stat().st_size != pinned.size:
        return False
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, pinned.hasher).hexdigest() == pinned.digest.partition(":")[2]


def pull(name: str, cache: Path, wanted: Sequence[str] = FILES, kind: str = "model") -> Path:
    """The folder of ``hf:OWNER/NAME@COMMIT``, below ``cache``; of the ``wanted`` files those that a ``kind`` of thing has.

    Raises:
        UsageError: it is not such a name, or the Hub has none.
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
    hub_call(
        lambda: hub.snapshot_download(
            repository, revision=commit, local_dir=base / "download", allow_patterns=list(wanted)
        ),
        repository,
    )
    made = base / f"made.{os.getpid()}"  # without the library's own files, whole or not at all
    made.mkdir()
    for name in wanted:
        if (base / "download" / name).is_file():
            (made / name).parent.mkdir(parents=True, exist_ok=True)
            (base / "download" / name).rename(made / name)
    made.rename(folder)
    shutil.rmtree(base / "download", ignore_errors=True)
    return folder
