"""Makes pages.warc.gz and pages-2.warc.gz: pages of Python's documentation as Debian's package python3.11-doc has them, as a
crawler writes them.

Call it with the folder that `dpkg -x python3.11-doc_*.deb FOLDER` made. It writes the file that is missing, of pages that the
other does not have. Order, dates and bytes follow from the package. What may be done with the pages is in pages.LICENCE, the
package's own notice.
"""

from __future__ import annotations

import gzip
import hashlib
import shutil
import sys
import uuid
from base64 import b32encode
from collections.abc import Iterator
from datetime import UTC, datetime
from email.utils import format_datetime
from pathlib import Path

from fastwarc.warc import ArchiveIterator, WarcRecordType

MOST, MOST_PAGE = 1_400_000, 90_000
"""Bytes of the file, and of a page: many that are small say more than a few that are long."""
FOLDERS = (
    "tutorial",
    "howto",
    "faq",
    "reference",
    "library",
    "c-api",
    "extending",
    "using",
    "install",
    "distutils",
    "whatsnew",
)
HERE = Path(__file__).parent
FILES = (HERE / "pages.warc.gz", HERE / "pages-2.warc.gz")
LINK = "<https://docs.python.org/3.11/license.html>; rel=license"


def record(page: bytes, url: str, changed: datetime) -> bytes:
    """One response as a WARC record."""
    head = f"HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=utf-8\r\nLast-Modified: {format_datetime(changed, True)}\r\n"
    block = f"{head}Link: {LINK}\r\nContent-Length: {len(page)}\r\n\r\n".encode() + page
    fields = {
        "WARC-Type": "response",
        "WARC-Record-ID": f"<urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, url)}>",
        "WARC-Date": changed.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "WARC-Target-URI": url,
        "WARC-Payload-Digest": "sha1:" + b32encode(hashlib.sha1(page, usedforsecurity=False).digest()).decode(),
        "Content-Type": "application/http; msgtype=response",
        "Content-Length": str(len(block)),
    }
    lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    return b"WARC/1.0\r\n" + lines.encode() + b"\r\n" + block + b"\r\n\r\n"


def main(unpacked: Path) -> None:
    """Write the pages in the order of the folders, as many as fit."""
    documents = unpacked / "usr" / "share" / "doc"
    html = documents / "python3.11" / "html"
    target = next(path for path in FILES if not path.exists())
    there = {url for path in FILES if path.exists() for url in addresses(path)}
    size = 0
    with target.open("wb") as out:
        for path in (path for folder in FOLDERS for path in sorted((html / folder).glob("*.html"))):
            changed = datetime.fromtimestamp(int(path.stat().st_mtime), UTC)
            url = "https://docs.python.org/3.11/" + path.relative_to(html).as_posix()
            member = gzip.compress(record(path.read_bytes(), url, changed), 9, mtime=0)
            if url not in there and path.stat().st_size <= MOST_PAGE and size + len(member) <= MOST:
                size += out.write(member)
    shutil.copyfile(documents / "python3.11-doc" / "copyright", HERE / "pages.LICENCE")


def addresses(path: Path) -> Iterator[str]:
    """The addresses of the pages that a file has."""
    with path.open("rb") as file:
        for found in ArchiveIterator(file, record_types=WarcRecordType.response):
            yield found.headers["WARC-Target-URI"]


if __name__ == "__main__":
    main(Path(sys.argv[1]))
