"""A site is signed: its pages by digest, and the state of the log that each was drawn from."""

from __future__ import annotations

import logging
from collections.abc import Container
from contextlib import suppress
from pathlib import Path

from ledger import LedgerError, Malformed, NotFound, open_storage
from marin.plugins.sharing.pages.statement import NOBODY, SignedPage, Statement, drawer, read_statement
from marin.process.files import write_whole
from marin.record.attestation import PAGES
from marin.record.root import Root
from marin.reporting.folder import pages_in

logger = logging.getLogger(__name__)


def sign_site(root: Root, folder: Path, address: str | None = None, unsure: Container[str] = ()) -> None:
    """Sign what was written into ``folder``, by the log's key where it is here. A page that is as it was signed before stays so.
    ``address``: where it will be served; None: as it was said before. ``unsure``: pages that may come out otherwise."""
    try:
        signer = root.signer()
    except LedgerError as error:
        (folder / PAGES).unlink(missing_ok=True)  # of other pages
        logger.warning("the pages are not signed, and so no evidence: %s", error.what)
        return
    old, size = None, root.reader().checkpoint().size
    with suppress(NotFound, Malformed):
        old = read_statement(open_storage(folder).read(PAGES), [root.verifier])
    before = {} if old is None else old.pages
    found = {}
    for path, digest in pages_in(folder).items():
        last, sha256 = before.get(path), digest.removeprefix("sha256:")
        found[path] = (
            last
            if last is not None and last.sha256 == sha256
            else SignedPage(sha256, str(size), NOBODY if path in unsure else drawer())
        )
    where = address if address is not None else old.address if old is not None else ""
    authors = tuple(map(str, root.author_keys()))
    write_whole(folder / PAGES, Statement(root.verifier.name, found, authors=authors, address=where).signed(signer))
