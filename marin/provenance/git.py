"""The one place where Git is called: without anything that a repository's or a user's configuration would execute.

A clone brings configuration that names programs (file system monitor, filters, signature checks, ssh, hooks, helpers),
and Git runs them for harmless commands too. Here neither system nor user configuration is read, what is left is set to
nothing in the environment, which outranks the repository's own file, and a bare repository is not entered unless its
path was given as such. Replaced objects (``refs/replace``) do not count.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

SECONDS = 600
_SETTINGS = {
    "core.alternateRefsCommand": "true",
    "core.askPass": "false",
    "core.attributesFile": os.devnull,
    "core.editor": "false",
    "core.excludesFile": os.devnull,
    "core.fsmonitor": "false",
    "core.gitProxy": "",
    "core.hooksPath": os.devnull,
    "core.pager": "cat",
    "core.quotePath": "false",
    "core.sshCommand": "ssh",
    "credential.helper": "",
    "commit.gpgSign": "false",
    "diff.external": "",
    "fetch.recurseSubmodules": "false",
    "gc.auto": "0",
    "gpg.openpgp.program": "false",
    "gpg.program": "false",
    "gpg.ssh.program": "false",
    "gpg.ssh.defaultKeyCommand": "false",
    "gpg.x509.program": "false",
    "log.showSignature": "false",
    "maintenance.auto": "false",
    "protocol.allow": "never",
    "protocol.file.allow": "always",
    "protocol.https.allow": "always",
    "protocol.ssh.allow": "always",
    "safe.bareRepository": "explicit",
    "sequence.editor": "false",
    "submodule.recurse": "false",
    "tag.gpgSign": "false",
}
_DIFFING = ("diff", "log", "show")
_NAMED = ("filter", "diff", "merge", "trailer", "remote")
"""Sections with a name of the repository's choice, below which these keys are programs:"""
_PROGRAMS = {
    "clean": "",
    "smudge": "",
    "process": "",
    "required": "false",
    "textconv": "cat",
    "driver": "false",
    "cmd": "",
    "uploadpack": "git-upload-pack",
    "receivepack": "git-receive-pack",
}


def quiet(folder: Path, *, seconds: float = SECONDS) -> Mapping[str, str]:
    """The settings under which no program is called that a configuration names. Raises as :func:`git`."""
    listed = _run(folder, ("config", "--list", "--name-only", "-z"), _SETTINGS, None, seconds)
    return _SETTINGS | _silenced(listed.stdout)


def git(
    folder: Path,
    *arguments: str,
    given: bytes | None = None,
    seconds: float = SECONDS,
    settings: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[bytes]:
    """`git ARGUMENT...` in ``folder``, whatever its exit status.

    Args:
        settings: what :func:`quiet` gave a moment ago, where several questions are asked at once.

    Raises:
        OSError: there is no Git.
        subprocess.TimeoutExpired: it takes longer than ``seconds``.
    """
    if arguments[0] in _DIFFING:  # a driver's own program cannot be set to nothing
        arguments = (arguments[0], "--no-ext-diff", "--no-textconv", *arguments[1:])
    return _run(folder, arguments, settings or quiet(folder, seconds=seconds), given, seconds)


def identity() -> list[str]:
    """The options that make this user the author: name and mail address as the user's configuration has them."""
    options = []
    for name in ("user.name", "user.email"):
        done = subprocess.run(["git", "config", "--global", "--get", name], capture_output=True, text=True, check=False)
        if value := done.stdout.strip():
            options += ["-c", f"{name}={value}"]
    return options


def _silenced(names: bytes) -> dict[str, str]:
    """What the repository's own sections of named programs are set to."""
    found = {}
    for name in os.fsdecode(names).split("\0"):
        section, _, rest = name.partition(".")
        key = rest.rpartition(".")[2]
        if section in _NAMED and rest != key and key in _PROGRAMS:
            found[name] = _PROGRAMS[key]
    return found


def _run(
    folder: Path, arguments: tuple[str, ...], settings: Mapping[str, str], given: bytes | None, seconds: float
) -> subprocess.CompletedProcess[bytes]:
    command = ["git", "--no-pager", "--no-replace-objects", "-C", str(folder), *arguments]
    variables = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    variables |= {
        "GIT_ASKPASS": "false",
        "GIT_ATTR_NOSYSTEM": "1",
        "GIT_CONFIG_COUNT": str(len(settings)),
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_TERMINAL_PROMPT": "0",
    }
    for number, (name, value) in enumerate(settings.items()):
        variables |= {f"GIT_CONFIG_KEY_{number}": name, f"GIT_CONFIG_VALUE_{number}": value}
    standard_input = given if given is not None else b""
    return subprocess.run(
        command, env=variables, input=standard_input, capture_output=True, timeout=seconds, check=False
    )
