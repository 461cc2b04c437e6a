"""`marin verify` of pages: whether a publisher signed them, and whether they are what the verified log says.

1. The statement beside the pages is signed by a key of the log that counts.
2. Every page is one that it names, by digest; none was added among them, and a page whose address was given is one of them.
3. Each is drawn again, from the verified events up to the size that the statement gives, and must come out the same. One that
   cannot be drawn here, or that other software drew otherwise, is named: of it only the signature is known.
4. One that says less than the log says by now is named too.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field

from ledger import KEY_TYPES, LedgerError, LogReader, NotFound, Storage, Unavailable, VerifierKey, digest_bytes
from marin.history.runs import load
from marin.plugins.sharing.dossier.judge import copied, judge_dossier
from marin.plugins.sharing.pages.earlier import EarlierRoot
from marin.plugins.sharing.pages.publication import OF_ALL, front_of, outputs_of, pages_of_publication
from marin.plugins.sharing.pages.site import Drawing, pages, path_of_output
from marin.plugins.sharing.pages.statement import NOBODY, Published, SignedPage, Statement, drawer, read_statement
from marin.process.text import several
from marin.provenance.extras import not_installed
from marin.record.attestation import PAGES
from marin.record.root import LedgerHistory, Root
from marin.reporting.lineage.samples import Inspector
from marin.verify.alone.judgement import Judgement, root_here, trusted_keys
from marin.verify.verdict import Outcome, Verdict, judge_safely, worst

PLACES, DOSSIERS = ("runs/", "outputs/", "experiments/", "sweeps/", "speedruns/"), "dossiers/"
"""Folders of a site in which every file is a page of the publisher's; of a publication, those with dossiers."""
CLOSE = 2
"""By how many of 255 levels a colour of a picture may differ: processors round otherwise."""
_MOST_NAMED, _SHOWN = 20, 80


@dataclass
class Looked:
    """What was found of the pages, as lines. ``held``: how many came out the same. ``unseen``: those of which only the signature
    is known, by the reason."""

    held: int = 0
    wrong: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    unseen: dict[str, list[str]] = field(default_factory=dict)

    def pass_over(self, path: str, reason: str) -> None:
        """Name a page that was not established."""
        self.unseen.setdefault(reason, []).append(path)

    def verdict(self) -> Verdict:
        """One verdict of all, the worst first."""
        unseen = [f"{reason}: {', '.join(paths)}" for reason, paths in self.unseen.items()]
        found: dict[Outcome, list[str]] = {"FAIL": self.wrong, "UNAVAILABLE": self.missing, "PARTIAL": unseen}
        outcome = worst([outcome for outcome, lines in found.items() if lines])
        held = [f"{several(self.held, 'pages')}, drawn again from the log, came out the same"] if self.held else []
        lines = [*self.wrong, *self.missing, *held, *unseen]
        more = [f"and {len(lines) - _MOST_NAMED} more"] if len(lines) > _MOST_NAMED else []
        return Verdict(outcome, (*lines[:_MOST_NAMED], *more))


def judge_publication(
    root: Root, run: str, reader: LogReader, history: LedgerHistory, page: str, inspector: Inspector | None = None
) -> Verdict | None:
    """The pages of ``run`` where ``root`` is a publication, and the ``page`` that was asked for; None where it has none.
    ``reader`` and ``history``: its log, as it was verified. ``inspector``: the caller's, who ends it.

    Raises:
        LedgerError: nothing that is signed of the pages can be read, or no key of the log that counts signed it.
    """
    storage = root.storage
    try:
        data = storage.read(PAGES)
    except NotFound:
        if not storage.exists(front_of(run)):
            return None
        return _unsigned()
    keys = _standing(reader, history)
    found, looked = read_statement(data, keys), Looked()
    named = {path for path in found.pages if path.startswith(f"runs/{run}/")}
    if not named:
        return Verdict("UNAVAILABLE", (f"nobody signed pages of {run}: what they say is no evidence",))
    shared = (*map(path_of_output, outputs_of(load(history, run))), *OF_ALL, page)
    named |= {path for path in shared if path in found.pages}
    if page and page not in found.pages and not page.startswith(DOSSIERS):
        looked.wrong.append(f"{page}: its publisher did not sign such a page")
    looked.wrong += _added(storage, found, (f"runs/{run}/", "outputs/"))

    def drawings(view: EarlierRoot, inspector: Inspector) -> Iterator[Drawing]:
        return pages_of_publication(view, found.runs, {run: load(view.history(), run)}, inspector)

    with nullcontext(inspector) if inspector is not None else Inspector() as asked:
        _look(storage, found, sorted(named), looked, Again(root, reader, found, drawings, asked))
    if (mine := found.runs.get(run)) is not None and mine.wheel:
        _look_at_wheel(storage, mine, looked)
    dossiers = [found.runs[run].dossier if run in found.runs else "", _dossier_of(page)]
    for name in dict.fromkeys(filter(None, dossiers)):
        _look_at_dossier(storage, name, keys, looked)
    return looked.verdict()


def judge_site(storage: Storage, trusted: Sequence[VerifierKey], page: str = "") -> Judgement:
    """The pages of a site, which brings no log: drawn again from the root of this command, where that is the site's and the
    verifier's own; otherwise only their signature is known.

    Raises:
        UsageError: there is no key to judge it by.
    """
    keys = trusted_keys(trusted, "a site")
    here = root_here()

    def judge() -> Verdict:
        if not storage.exists(PAGES):
            return _unsigned()
        found, looked = read_statement(storage.read(PAGES), keys), Looked()
        if page and page not in found.pages:
            looked.wrong.append(f"{page}: its publisher did not sign such a page")
        looked.wrong += _added(storage, found, PLACES)
        log = here if here is not None and here.is_own() and here.verifier.name == found.log else None

        def drawings(view: EarlierRoot, inspector: Inspector) -> Iterator[Drawing]:
            return ((drawn.path, drawn.draw) for drawn in pages(view, found.address, inspector))

        with Inspector() as asked:
            again = Again(log, None if log is None else log.reader(), found, drawings, asked)
            _look(storage, found, sorted(found.pages), looked, again)
        return looked.verdict()

    return Judgement(f"pages at {storage.describe()}", {"pages": judge_safely(judge)})


def _unsigned() -> Verdict:
    return Verdict("UNAVAILABLE", (f"nobody signed the pages here, {PAGES} is missing: what they say is no evidence",))


class Again:
    """Pages drawn again by ``drawings`` of a root as its publisher saw it, from the log that ``reader`` reads; None: there is
    none here."""

    def __init__(
        self,
        root: Root | None,
        reader: LogReader | None,
        found: Statement,
        drawings: Callable[[EarlierRoot, Inspector], Iterator[Drawing]],
        inspector: Inspector,
    ) -> None:
        self._root, self._reader, self._drawings = root, reader, drawings
        self._authors = tuple(map(VerifierKey.parse, found.authors))
        self._known: dict[int, dict[str, Callable[[], bytes]]] = {}
        self._inspector = inspector

    @property
    def size(self) -> int:
        """How long the log is here."""
        return 0 if self._reader is None else self._reader.checkpoint().size

    def page(self, path: str, size: int) -> bytes:
        """The page, from the log as it was with this ``size``.

        Raises:
            Unavailable: it cannot be drawn here, for the reason that it says.
        """
        self._inspector.silent = False
        try:
            made = self._of(size)[path]()
        except ImportError as error:
            absent = not_installed(error)
            raise Unavailable(f"not drawn again, {error.name} is not installed" if absent else str(error)) from error
        except Exception as error:  # what is drawn of was brought, and what cannot be drawn accuses nobody
            raise Unavailable(f"not drawn again, {type(error).__name__}: {error}"[:300]) from error
        if self._inspector.silent:
            raise Unavailable("not drawn again, what train steps saw could not be found here")
        return made

    def _of(self, size: int) -> Mapping[str, Callable[[], bytes]]:
        if self._root is None or self._reader is None:
            raise Unavailable("the log is not at hand: name it with --root")
        if size not in self._known:
            view = EarlierRoot.of(self._root, self._reader, size, self._authors)
            self._known[size] = dict(self._drawings(view, self._inspector))
        return self._known[size]


def _look(storage: Storage, found: Statement, paths: Iterable[str], looked: Looked, again: Again) -> None:
    for path in paths:
        try:
            content = storage.read(path)
        except NotFound:
            looked.missing.append(f"{path}: its publisher signed it, and it is not here")
            continue
        digest, entry = digest_bytes(content).removeprefix("sha256:"), found.pages[path]
        if digest != entry.sha256:
            last = found.before.get(path)
            if last is not None and last.sha256 == digest:
                looked.pass_over(path, "earlier pages, which their publisher is replacing")
            else:
                looked.wrong.append(f"{path}: {_other(entry.sha256, digest)}{_more(path, content, entry, again)}")
            continue
        try:
            _compare(path, content, entry, again, looked)
        except Unavailable as error:
            looked.pass_over(path, f"signed by their publisher, and {error.what}")


def _compare(path: str, content: bytes, entry: SignedPage, again: Again, looked: Looked) -> None:
    """One that is signed, and drawn again."""
    if entry.size > again.size > 0:
        looked.missing.append(f"{path}: drawn from {entry.size} events, of which the log here has {again.size}")
        return
    made = again.page(path, entry.size)
    if not _comes_out(path, made, content):
        if entry.by != drawer():
            why = (
                "not drawn whole where they were published, since something had no answer in time: publish again"
                if entry.by == NOBODY
                else "not drawn again, as other software than this drew them"
            )
            looked.pass_over(path, f"signed by their publisher, and {why}")
        else:
            looked.wrong.append(f"{path}: not what the log says: {_difference(made, content)}")
    elif entry.size < again.size and not _comes_out(path, again.page(path, again.size), content):
        looked.pass_over(path, f"true of the first {entry.size} events; the log has {again.size}, and says more now")
    else:
        looked.held += 1


def _more(path: str, content: bytes, entry: SignedPage, again: Again) -> str:
    """Where a page that nobody signed differs from one that is drawn here."""
    with suppress(Unavailable):
        return f"; {_difference(again.page(path, entry.size), content)}"
    return ""


def _comes_out(path: str, made: bytes, content: bytes) -> bool:
    return made == content or (path.endswith(".png") and _same_picture(made, content))


def _same_picture(made: bytes, content: bytes) -> bool:
    """Whether two pictures have the same size, the same text beside them and the same colours, as near as processors round."""
    import numpy  # what draws pictures has both
    from PIL import Image

    try:
        one, other = (Image.open(io.BytesIO(data), formats=["PNG"]) for data in (made, content))
        if (one.size, one.mode, one.info) != (other.size, other.mode, other.info):
            return False
        colours = [numpy.asarray(picture).astype(int) for picture in (one, other)]
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError):
        return False
    return bool((abs(colours[0] - colours[1]) <= CLOSE).all())


def _difference(made: bytes, content: bytes) -> str:
    """The first place at which a page is not the one that is drawn here."""
    expected, found = (data.decode("utf-8", "replace") for data in (made, content))
    if "\0" in expected:
        return "another picture"
    at = next((n for n, (one, other) in enumerate(zip(expected, found, strict=False)) if one != other), 0)
    at = at or min(len(expected), len(found))
    before, here = expected[max(0, at - _SHOWN) : at], slice(at, at + _SHOWN)
    return f"after {before!r} expected {expected[here]!r}, found {found[here]!r}"


def _added(storage: Storage, found: Statement, places: Iterable[str]) -> list[str]:
    """Files that lie among the pages and are not pages, where the storage can be listed."""
    known = {*found.pages, *found.before}
    with suppress(Unavailable):
        names = sorted(name for place in places for name in storage.list(place))
        return [f"{name}: its publisher did not sign such a page" for name in names if name not in known]
    return []


def _standing(reader: LogReader, history: LedgerHistory) -> list[VerifierKey]:
    """The log's own keys that it did not retire."""
    retired = {
        text
        for kind in KEY_TYPES
        if "retired" in kind
        for _, event in history.events(type=kind)
        for text in event.body.get("vkeys", ())
    }
    own = (key for key in reader.keys if key.name == reader.checkpoint().origin and key.until is None)
    return [key for key in own if str(key) not in retired]


def _look_at_wheel(storage: Storage, published: Published, looked: Looked) -> None:
    try:
        digest = hashlib.sha256(storage.read(published.wheel)).hexdigest()
    except NotFound:
        looked.missing.append(f"{published.wheel}: its publisher signed it, and it is not here")
        return
    if digest != published.wheel_digest:
        looked.wrong.append(f"{published.wheel}: {_other(published.wheel_digest, digest)}")


def _other(signed: str, found: str) -> str:
    return f"expected sha256:{signed}, as its publisher signed it, found sha256:{found}"


def _dossier_of(page: str) -> str:
    """The folder of the dossier that a page is of."""
    return "/".join(page.split("/")[:2]) if page.startswith(DOSSIERS) else ""


def _look_at_dossier(storage: Storage, name: str, keys: Sequence[VerifierKey], looked: Looked) -> None:
    """The dossier, judged as `marin verify --dossier` does, but for what nobody has stated yet."""
    try:
        with copied(storage, f"{name}/", keys) as folder:
            found = judge_dossier(folder, keys)
    except NotFound as error:
        looked.missing.append(f"{name}: {error}")
        return
    except LedgerError as error:
        looked.wrong.append(f"{name}: {error}")
        return
    verdicts = [verdict for question, verdict in found.verdicts.items() if question != "complete"]
    bad = next((verdict for verdict in verdicts if verdict.outcome not in ("PASS", "PARTIAL")), None)
    if bad is None:
        looked.held += 1
    else:
        said = bad.lines[0] if bad.lines else bad.outcome
        looked.wrong.append(f"{name}: {said}") if bad.outcome == "FAIL" else looked.pass_over(name, said)
