"""Which paths a tree may hold: the ones that mean the same file on every system that checks the tree out.

A manifest may come from a stranger, and a checkout writes where it says. So a path is refused, with the rule
that it breaks, when it could leave the tree, when some file system in use cannot hold it (Windows' reserved
names and characters, names above 255 bytes), when two paths of one tree would meet in one file (case, Unicode
normal form, a file where another path needs a folder), or when writing it would plant something that runs (a
``.git`` folder).

    check_path("model/config.json")      fine
    check_path("../keys/id")             Refused: leaves the tree
    check_tree(["a/B", "A/c"])           Refused: "a" and "A" are one folder where case does not count

Sources: "Naming Files, Paths, and Namespaces" (Microsoft Learn); Unicode TR 15 for the normal form.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from typing import Final

from ledger.errors import Refused

MAX_NAME_BYTES: Final = 255
MAX_PATH_BYTES: Final = 1024

_FORBIDDEN: Final = re.compile(r'[<>:"|?*\\\x00-\x1f\x7f]')
_DEVICES: Final = frozenset(
    {"con", "prn", "aux", "nul", "conin$", "conout$"}
    | {f"{port}{n}" for port in ("com", "lpt") for n in "123456789¹²³"}
)
_PLANTED: Final = frozenset({".git", "git~1"})
_PLAIN_NAME: Final = r"(?!(?:con|prn|aux|nul|com[1-9]|lpt[1-9])(?:[^0-9a-z_-]|\Z))[0-9a-z_-]+(?:\.[0-9a-z_-]+)*"
PLAIN_PATH: Final = rf"(?ai:{_PLAIN_NAME}(?:/{_PLAIN_NAME})*)"
"""A pattern of paths that break no rule, if they are not too long; it says nothing of others."""
_PLAIN: Final = re.compile(PLAIN_PATH + r"\Z")


def check_path(path: str) -> None:
    """Refuse ``path`` unless it is relative, stays inside its tree and can exist everywhere."""
    if len(path) <= MAX_NAME_BYTES and _PLAIN.match(path):
        return
    if not path:
        raise _refused(path, "a relative path", "an empty one")
    if path.startswith("/"):
        raise _refused(path, "a relative path", "an absolute one")
    if len(_utf8(path)) > MAX_PATH_BYTES:
        raise _refused(path[:60] + "…", f"at most {MAX_PATH_BYTES} bytes", f"{len(_utf8(path))}")
    for name in path.split("/"):
        _check_name(name, path)


def check_tree(paths: Iterable[str]) -> None:
    """Refuse a set of paths of which one is bad, or of which two would be one file (or a file and a folder)."""
    paths = list(paths)
    if _are_plain(paths):
        return
    spelled: dict[str, str] = {}
    files: set[str] = set()
    folders: set[str] = set()
    for path in paths:
        check_path(path)
        # Folders first met in an earlier path were entered with all of their parents, so the walk up can stop there.
        folder = path.rpartition("/")[0]
        while folder and folder not in folders:
            folders.add(folder)
            _claim(spelled, folder, path)
            folder = folder.rpartition("/")[0]
        if path in files:
            raise _refused(path, "each path once", "it twice")
        files.add(path)
        _claim(spelled, path, path)
    both = files & folders
    if both:
        raise _refused(min(both), "a file or a folder", "both of that name")


def _are_plain(paths: Sequence[str]) -> bool:
    """Whether these paths break no rule, told by one look at each; the rules are asked for all others."""
    if not all(map(_PLAIN.match, paths)) or max(map(len, paths), default=0) > MAX_NAME_BYTES:
        return False
    folders = {path.rpartition("/")[0] for path in paths}
    for folder in list(folders):
        while folder := folder.rpartition("/")[0]:
            folders.add(folder)
    folders.discard("")
    folded = {path.lower() for path in (*paths, *folders)}
    return len(folded) == len(paths) + len(folders)


def fold(path: str) -> str:
    """The key under which two paths collide on a file system that ignores case or normal form."""
    if path.isascii():
        return path.lower()
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", path).casefold())


def _claim(spelled: dict[str, str], path: str, whole: str) -> None:
    other = spelled.setdefault(fold(path), path)
    if other != path:
        raise _refused(
            whole,
            "names that differ by more than case or Unicode form",
            f"{other!r} beside {path!r}",
            "rename one of them",
        )


def _check_name(name: str, path: str) -> None:
    if name in ("", ".", ".."):
        raise _refused(path, "names between single slashes", f"{name!r}, which could leave the tree")
    if len(_utf8(name)) > MAX_NAME_BYTES:
        raise _refused(path[:60] + "…", f"names of at most {MAX_NAME_BYTES} bytes", f"{len(_utf8(name))}")
    bad = _FORBIDDEN.search(name)
    if bad is not None:
        raise _refused(path, "characters that every file system takes", f"{bad[0]!r}")
    if name[-1] in ". ":
        raise _refused(path, "a name that does not end in a dot or a space", f"{name!r}")
    folded = fold(name)
    if folded.split(".", 1)[0].rstrip(" ") in _DEVICES:
        raise _refused(path, "a name that is no device", f"{name!r}, which Windows reserves")
    if folded in _PLANTED:
        raise _refused(path, "no repository inside a tree", f"{name!r}", "put the files without it")


def _utf8(text: str) -> bytes:
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError as error:
        shown = text.encode("utf-8", "backslashreplace").decode()
        raise _refused(shown, "a name in UTF-8", "bytes that are not") from error


def _refused(path: str, expected: str, found: str, cure: str = "rename it") -> Refused:
    return Refused(what="path in a tree", where=repr(path), expected=expected, found=found, cure=cure)
