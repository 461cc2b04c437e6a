"""``--at-commit REF``: verify with the commit that a run names, built beside this checkout in a Git worktree.

Code that a ledger names is never executed by itself. Here it is, after you confirm, and only where it belongs to the history
of a ref that the verifier named: a run can name any commit, and a server gives out commits that no branch has. It gets
the environment that this commit's own lock describes, every hash checked by the installer. The commit's own
``.ci/environment`` makes it, as `make` would.

The run chooses the commit, and any of that history: also one whose verifier is fooled by what was mended since. So its
word is worth less than that of the installed code: it is recorded nowhere, and what passes there is PARTIAL.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from marin.errors import MissingEvidence, UsageError
from marin.process.cache import cache_folder, own_folder
from marin.provenance.code import code_folder
from marin.provenance.git import git
from marin.verify.environment_diff import EnvironmentDiff

logger = logging.getLogger(__name__)
PARTIAL_STATUS = 4
Agreed = bool | Callable[[str], bool]
"""Whether the commit may be built and executed, or who is asked."""


def verify_at_commit(
    around: EnvironmentDiff, ref: str, location: str, run: str, arguments: Sequence[str], agreed: Agreed
) -> int:
    """Exit status of ``marin verify RUN`` as the run's commit has it, that of PARTIAL where all passes; its output goes
    where ours goes. ``ref``: what the verifier trusts, in whose history the commit must be; ``REMOTE/BRANCH`` is
    fetched.

    Raises:
        MissingEvidence: the run names no commit, it is not in the history of ``ref``, or its environment can not be
            made.
        UsageError: nobody agreed.
        Refused: someone else could have written the folder of worktrees.
    """
    if not around.commit:
        raise MissingEvidence(
            "the run names no commit",
            where=f"run {run}",
            expected="a commit of this repository",
            found="none",
            cure="verify with the installed code",
        )
    folder = cache_folder() / "commits" / around.commit
    where = Path(location).resolve() if "://" not in location else location
    question = f"Build commit {around.commit} of {ref} with its own lock in {folder} and execute it?"
    if agreed is not True and not (callable(agreed) and agreed(question)):
        raise UsageError(
            "the commit was not built",
            where="--at-commit",
            expected="a yes",
            found="no",
            cure="read the commit first, then answer yes, or give --yes",
        )
    _check_history(code_folder(), ref, around.commit)
    own_folder("commits")
    _worktree(folder, around.commit)
    marin = _environment(folder)
    command = [str(marin), "--root", str(where), "verify", run, *arguments, "--no-record"]
    logger.info("verifying with commit %s", around.commit)
    status = subprocess.run(command, env=_variables(), check=False).returncode
    if status:
        return status
    logger.warning(
        "PARTIAL: the verifier of commit %s found nothing wrong; it knows no forgery that was found since, and its verdicts "
        "are recorded nowhere",
        around.commit,
    )
    return PARTIAL_STATUS


def _check_history(source: Path, ref: str, commit: str) -> None:
    """Bring ``ref`` up to date where it is a remote's, and raise unless ``commit`` is in its history."""
    remote, slash, branch = ref.removeprefix("refs/remotes/").partition("/")
    if slash and remote in _git(source, "remote").split():
        logger.info("fetching %s", ref)
        _git(source, "check-ref-format", f"refs/heads/{branch}")
        _git(
            source,
            "fetch",
            "--quiet",
            "--no-tags",
            "--no-recurse-submodules",
            "--end-of-options",
            remote,
            f"+refs/heads/{branch}:refs/remotes/{remote}/{branch}",
        )
    tip = _git(source, "rev-parse", "--verify", "--end-of-options", f"{ref}^{{commit}}").strip()
    if _ran(source, "merge-base", "--is-ancestor", commit, tip).returncode:
        raise MissingEvidence(
            "the run's commit is not in the history that was named",
            where=f"--at-commit {ref}",
            expected=f"an ancestor of {tip}, or itself",
            found=commit,
            cure="name the ref that has it, if you trust what is on it",
        )


def _worktree(folder: Path, commit: str) -> None:
    if (folder / ".git").exists():
        if _git(folder, "rev-parse", "HEAD").strip() == commit and not _git(folder, "status", "--porcelain").strip():
            return
        raise MissingEvidence(
            "the worktree of the commit is not as the commit has it",
            where=str(folder),
            expected=commit,
            found="changed files or another commit",
            cure=f"git worktree remove --force {folder}",
        )
    source = code_folder()
    _git(source, "worktree", "prune")
    _git(source, "worktree", "add", "--quiet", "--detach", str(folder), commit)


def _environment(folder: Path) -> Path:
    """The `marin` of the commit's own environment, made by the commit's own recipe if it is not there yet."""
    marin = folder / ".venv" / "bin" / "marin"
    done = subprocess.run(["bash", "./.ci/environment"], cwd=folder, env=_variables(), stdout=sys.stderr, check=False)
    if done.returncode or not marin.exists():
        raise MissingEvidence(
            "the commit's environment can not be made",
            where=str(folder),
            expected="a finished .ci/environment",
            found=f"exit status {done.returncode}",
            cure="look at its messages above",
        )
    return marin


def _variables() -> dict[str, str]:
    """Without what the arithmetic contract of this process set, and without this environment's own paths."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("JAX_", "XLA_", "PYTHON", "VIRTUAL_ENV")) and name not in ("NPROC", "MARIN_ARITHMETIC")
    }


def _git(folder: Path, *arguments: str) -> str:
    done = _ran(folder, *arguments)
    if done.returncode:
        raise MissingEvidence(
            "Git does not give the commit",
            where=f"git {' '.join(arguments[:3])}",
            expected="exit status 0",
            found=done.stderr.decode("utf-8", "replace").strip()[:300] or str(done.returncode),
            cure="name a ref of this repository, or of a remote of it as REMOTE/BRANCH",
        )
    return done.stdout.decode("utf-8", "replace")


def _ran(folder: Path, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    try:
        return git(folder, *arguments)
    except OSError as error:
        raise MissingEvidence("there is no Git", where="git", expected="the program", found=str(error)) from error
    except subprocess.TimeoutExpired as error:
        raise MissingEvidence("Git does not end", where=f"git {' '.join(arguments[:3])}", found=str(error)) from error
