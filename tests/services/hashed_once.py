"""The files of this repository, hashed once a process and again where they changed: each run that a test records asks for
the digest of all of them, as a user's does once."""

from __future__ import annotations

import os

from marin.provenance import code


def hash_code_once() -> None:
    """From now on, in this process and its forks. What lies elsewhere, as all that a test writes, is hashed each time."""
    hashed, own, known = code._file_digest, f"{code.code_folder()}{os.sep}", dict[tuple[object, ...], str]()

    def once(path: str) -> str:
        if not path.startswith(own):
            return hashed(path)
        at = os.stat(path)
        file = (path, at.st_dev, at.st_ino, at.st_size, at.st_mtime_ns, at.st_ctime_ns)
        if file not in known:
            known[file] = hashed(path)
        return known[file]

    code._file_digest = once
