"""The installed Marin as a wheel, which lies beside what was published: with its digest in the page, `pip` takes no other.

It is written from the files that are really imported, and from what their distribution says of itself, so that no build tool is
needed. The same files make the same bytes.
"""

from __future__ import annotations

import base64
import hashlib
import io
import os
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

from marin.provenance.code import code_folder, provenance
from marin.provenance.git import git
from marin.provenance.plugins import DISTRIBUTION

SHIPPED = ("ledger", "marin")
"""Without experiments, which may be nobody else's business."""
_SUFFIXES = frozenset(
    {".py", ".pyi", ".typed", ".md", ".html", ".css", ".js", ".mjs", ".json", ".j2", ".tlog-proof", ".yaml"}
)
_ABOUT = ("METADATA", "entry_points.txt", "licenses/LICENSE")
_WHEEL = "Wheel-Version: 1.0\nGenerator: marin\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
_MOMENT = (1980, 1, 1, 0, 0, 0)


def wheel() -> tuple[str, bytes] | None:
    """Its file name and its bytes; None where the code has changes that nobody committed, which stay at home, or the
    installation does not say what it is."""
    try:
        about = distribution(DISTRIBUTION)
    except PackageNotFoundError:
        return None
    here = provenance(code_folder())
    if here.dirty:
        return None
    stem = f"{DISTRIBUTION.replace('-', '_')}-{about.version}"
    files = dict(_code(code_folder(), committed=bool(here.commit)))
    files |= {f"{stem}.data/data/share/marin/conf/{name}": data for name, data in _groups()}
    files |= {f"{stem}.dist-info/{name}": text.encode() for name in _ABOUT if (text := about.read_text(name))}
    files[f"{stem}.dist-info/WHEEL"] = _WHEEL.encode()
    record = f"{stem}.dist-info/RECORD"
    files[record] = "".join([*(_line(name, data) for name, data in sorted(files.items())), f"{record},,\n"]).encode()
    made = io.BytesIO()
    with ZipFile(made, "w", ZIP_DEFLATED) as archive:
        for name, data in files.items():
            entry = ZipInfo(name, _MOMENT)
            entry.compress_type, entry.external_attr = ZIP_DEFLATED, 0o644 << 16
            archive.writestr(entry, data)
    return f"{stem}-py3-none-any.whl", made.getvalue()


def _code(folder: Path, *, committed: bool) -> Iterator[tuple[str, bytes]]:
    found = sorted(path for package in SHIPPED for path in (folder / package).rglob("*"))
    names = {path.relative_to(folder).as_posix() for path in found if path.suffix in _SUFFIXES}
    if committed:  # what lies between them is nobody's
        listed = git(folder, "ls-files", "-z", "--", *SHIPPED).stdout
        names &= {os.fsdecode(name) for name in listed.split(b"\0")}
    for name in sorted(names):
        yield name, (folder / name).read_bytes()


def _groups() -> Iterator[tuple[str, bytes]]:
    """The groups of recipes, of a checkout or as they were installed."""
    places = (code_folder() / "conf", Path(sys.prefix) / "share" / "marin" / "conf")
    conf = next((place for place in places if place.is_dir()), None)
    for path in sorted(conf.rglob("*.yaml")) if conf is not None else ():
        yield path.relative_to(conf or path).as_posix(), path.read_bytes()


def _line(name: str, data: bytes) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    return f"{name},sha256={digest},{len(data)}\n"
