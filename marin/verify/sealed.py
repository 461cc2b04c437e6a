"""`marin verify` of someone else's root or bundle: in a process that the kernel confines before it reads a byte.

The parent holds what is worth something: the signing key, the network, the files of the user. The child reads, hashes
and executes. It is a fresh program, so nothing of the parent's memory is in it, with few variables of the environment,
a home folder that is empty, and a cache of compiled programs of its own. It can ask the parent for two things: bytes of
the root that is verified, where that is not a local folder (:mod:`ledger.storage.brokered`), and to append its verdicts to
the verifier's own log.

docs/verify.md says what this protects, and what it does not.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import socketserver
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

import msgspec

import ledger
from marin.data.reach import Reach
from marin.errors import MarinError, UsageError
from marin.history.runs import LATEST, replay_stream, stream_of
from marin.kinds.known import type_of
from marin.process.cache import cache_folder, own_folder
from marin.process.confinement import VARIABLE, Confined, Limits, current_confinement
from marin.provenance.code import code_folder
from marin.record.events import ReplayCompleted, ReplaySegment, read
from marin.record.root import Root, append_through, open_root

UNCONFINED, NETWORK, READ = "unconfined", "network", "read"
_KEPT = (
    "PATH",
    "LANG",
    "LC_",
    "TERM",
    "COLORTERM",
    "COLUMNS",
    "LINES",
    "NO_COLOR",
    "TZ",
    "NPROC",
    "PYTHON",
    "JAX_",
    "XLA_",
    "OMP_",
    "CUDA_",
    "NVIDIA_",
    "LD_LIBRARY_PATH",
    "GLIBC_",
    "MALLOC_",
    "MARIN_",
)
"""Variables that the child gets, by how they begin. Not tokens, credentials and addresses of agents."""
_WITHHELD = ("MARIN_KEY", "MARIN_RAY")
_MOST_DRAFTS, _MOST_REQUEST, _MOST_PAGE = 64, 16 << 20, 256 << 20
LONGEST_PLACE = 30
"""Letters of a folder below which Ray's sockets still have names that are short enough."""
_GRACE_SECONDS = 20.0
SHARED_MEMORY = "/dev/shm"  # noqa: S108


@dataclass(frozen=True)
class Allowed:
    """What the verifier opens by name. ``hosts`` None: no network. ``named``: files that other options name."""

    unconfined: bool = False
    hosts: tuple[str, ...] | None = None
    folders: tuple[str, ...] = ()
    named: tuple[str, ...] = ()

    @classmethod
    def parse(cls, names: Sequence[str]) -> Allowed:
        """From ``unconfined``, ``network:HOST`` and ``read:PATH``.

        Raises:
            UsageError: something else.
        """
        hosts, folders, unconfined = [], [], False
        for name in names:
            kind, _, value = name.partition(":")
            if kind == NETWORK and value:
                hosts.append(value)
            elif kind == READ and value:
                folders.append(str(Path(value).resolve()))
            elif name == UNCONFINED:
                unconfined = True
            else:
                raise UsageError(
                    "nothing of that name can be opened",
                    where="--allow",
                    expected="network:HOST, read:PATH or unconfined",
                    found=name,
                    cure="see `marin verify --help`",
                )
        return cls(unconfined, tuple(hosts) or None, tuple(folders))

    def reach(self) -> Reach:
        """What data of a stranger's recipe may lead to."""
        return Reach(folders=self.folders, hosts=self.hosts or ())


class Seal(msgspec.Struct, frozen=True):
    """What the child is told. ``own``: the root whose log gets the verdicts; ``own_keys``: the verifier's keys of that
    log, none where it is not this user's; ``appends``: the socket that takes what is appended; ``file``: bytes of each file that
    is written; ``parent``: the process without which the child ends."""

    read: tuple[str, ...]
    write: tuple[str, ...]
    temporary: str
    network: bool
    memory: int
    seconds: int
    file: int
    parent: int
    own: str | None
    own_keys: tuple[str, ...]
    appends: str


def seal() -> Seal | None:
    """What this process was told to shut itself in with; None where it is not such a child."""
    text = os.environ.get(VARIABLE)
    return None if text is None else msgspec.json.decode(text, type=Seal)


def opened_own(trusted: Sequence[ledger.VerifierKey] = ()) -> Root | None:
    """The root, if its log is this user's: that user's signing key is the one that it names, and no other one was given to read
    it under. None where it is someone else's; one that cannot be opened is nobody's. Anyone who goes on with it goes on with
    what is returned: opened again, it may name another key.

    Raises:
        ledger.Refused: the file named as the key (``MARIN_KEY``) is not a key.
    """
    try:
        root = open_root()
    except ledger.LedgerError:
        return None
    if not root.is_own(trusted):
        return None
    try:
        root.signer()
    except ledger.LedgerError:
        return None
    return root


# -- the child ----------------------------------------------------------------------------------------------------


def enter(told: Seal) -> tuple[Confined, Root | None]:
    """What holds of this process since it shut itself in (:mod:`marin.cli.verifying.confined`), and the verifier's own
    root, whose appends go through the parent."""
    if told.own is None:
        return current_confinement(), None
    append_through(lambda _, drafts: _hand_over(told.appends, drafts))
    keys = tuple(ledger.VerifierKey.parse(line) for line in told.own_keys)
    return current_confinement(), replace(read_only_root(open_root(told.own)), own=keys)


def read_only_root(root: Root) -> Root:
    """The root for reading alone; what can be rebuilt goes to a temporary folder."""
    folder = tempfile.mkdtemp(prefix="root-")
    return replace(
        root, location=root.absolute, local=Path(folder), storage=ledger.open_storage(root.absolute, readonly=True)
    )


def _hand_over(path: str, drafts: Sequence[ledger.Draft]) -> list[ledger.Receipt]:
    request = [{"type": d.type, "stream": d.stream, "body": dict(d.body), "id": d.id} for d in drafts]
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)
        with connection.makefile("rwb") as stream:
            stream.write(json.dumps(request).encode() + b"\n")
            stream.flush()
            answer = json.loads(stream.readline())
    if "error" in answer:
        raise ledger.Unavailable("the verifier's own log takes nothing", where="record", found=str(answer["error"]))
    return [ledger.Receipt(*item) for item in answer["receipts"]]


# -- the parent ---------------------------------------------------------------------------------------------------


def _for_sockets() -> str | None:
    """Where a folder with sockets is made: the name of a socket has at most 107 bytes (unix(7)), and Ray's lie 60 bytes
    deeper. None is the usual place for temporary files, which a user may have put where names are long."""
    usual, short = tempfile.gettempdir(), "/tmp"  # noqa: S108  # a folder of its own, mode 0700, is made in it
    return short if len(usual) > LONGEST_PLACE and os.access(short, os.W_OK | os.X_OK) else None


def verify(
    arguments: Sequence[str],
    location: str | None,
    *,
    run: str,
    asked: str,
    front: Sequence[str],
    allowed: Allowed,
    own: Root | None,
    html: Path | None,
    limits: Limits,
    shared: bool,
    executes: bool = True,
) -> int:
    """Run ``marin FRONT verify ARGUMENTS -- ASKED`` as the child, and return its exit status. ``asked``: ``run``, or the page
    of it that was named. ``location``: of the root; None where what is verified lies in files that ``allowed`` names.
    ``shared``: its workers share memory, which Ray keeps in files that everybody may write. ``executes``: something of the run
    may be executed, by programs that are compiled already."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="m-", dir=_for_sockets())))
        for name in ("home", "t"):
            (folder / name).mkdir()
        if own is not None:
            stack.enter_context(_appending(own, Entry(run), folder / "appends"))
        variables = variables_of(folder, executes)
        if location is not None and "://" in location and not location.startswith("file://"):
            (folder / "kept").mkdir()
            # Workers read the store each by themselves.
            once = ledger.Once(ledger.open_storage(location), folder / "kept", ledger.SETTLED)
            stack.enter_context(ledger.serving(once, folder / "root"))
            variables[ledger.BROKER_VARIABLE] = str(folder / "root")
        pages = folder / "t" / "pages"
        pages.mkdir()
        page = pages / html.name if html is not None else pages
        told = _seal(folder, location, allowed, own, limits, variables, shared)
        variables[VARIABLE] = msgspec.json.encode(told).decode()
        written = ["--html", str(page)] if html is not None else []
        program = [sys.executable, "-P", "-m", "marin.cli.verifying.confined"]
        status = _run([*program, *front, "verify", *written, *arguments, "--", asked], variables, limits)
        with suppress(OSError):  # the folder had to be there for the child; where nothing was pinned it goes again
            Path(variables["MARIN_PINS"]).rmdir()
        for made, place in ((page, html), (page.with_suffix(".png"), html.with_suffix(".png"))) if html else ():
            if os.path.lexists(made):
                with os.fdopen(ledger.open_plain(str(made)), "rb") as stream:
                    place.write_bytes(stream.read(_MOST_PAGE))
    return status


def _seal(
    folder: Path,
    location: str | None,
    allowed: Allowed,
    own: Root | None,
    limits: Limits,
    variables: dict[str, str],
    shared: bool,
) -> Seal:
    state, cache = Path(variables["MARIN_PINS"]), Path(variables["MARIN_CACHE"])
    for needed in (state, cache):
        needed.mkdir(mode=0o700, parents=True, exist_ok=True)
    roots = [root for root in (location, own.absolute if own is not None else "") if root and "://" not in root]
    data = os.environ.get("MARIN_DATA")
    opened = (*([data] if data else []), *allowed.folders, *allowed.named)
    return Seal(
        read=(*roots, str(code_folder()), variables["MARIN_TRUST"], *opened),
        write=(str(folder / "t"), str(folder / "home"), str(state), str(cache), *([SHARED_MEMORY] if shared else [])),
        temporary=str(folder / "t"),
        network=allowed.hosts is not None,
        memory=limits.memory,
        seconds=limits.seconds,
        file=limits.file,
        parent=os.getpid(),
        own=own.absolute if own is not None else None,
        own_keys=tuple(map(str, own.keys().verifiers)) if own is not None and own.is_own() else (),
        appends=str(folder / "appends"),
    )


def variables_of(folder: Path, executes: bool = True) -> dict[str, str]:
    """The child's environment. The cache of one that ``executes`` begins with the programs that this user's own processes
    compiled; what it writes there, only other such children read."""
    config = os.environ.get("XDG_CONFIG_HOME") or str(Path.home() / ".config")
    state = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local/state")
    cache = cache_folder() / "foreign"
    if executes:
        for name in ("xla", "answers"):  # compiled programs, and what this machine answered
            _copy_new(own_folder(name), own_folder("foreign", name))  # a copy would be this user's
    kept = {
        name: value for name, value in os.environ.items() if name.startswith(_KEPT) and not name.startswith(_WITHHELD)
    }
    path = os.pathsep.join(filter(None, (str(code_folder()), os.environ.get("PYTHONPATH"))))
    return {
        "MARIN_PINS": f"{state}/marin/pins",
        "MARIN_TRUST": f"{config}/marin/trust",
        **kept,
        "HOME": str(folder / "home"),
        "TMPDIR": str(folder / "t"),
        "XDG_CACHE_HOME": str(folder / "home" / ".cache"),
        "XDG_CONFIG_HOME": str(folder / "home" / ".config"),
        "XDG_STATE_HOME": str(folder / "home" / ".local"),
        "MARIN_CACHE": str(cache),
        "PYTHONPATH": path,
    }


def _copy_new(source: Path, target: Path) -> None:
    with suppress(OSError):
        for entry in os.scandir(source):
            if entry.is_file(follow_symlinks=False) and not (target / entry.name).exists():
                temporary = target / f".tmp-{os.getpid()}"
                shutil.copyfile(entry.path, temporary)
                temporary.replace(target / entry.name)


def _run(command: Sequence[str], variables: dict[str, str], limits: Limits) -> int:
    out = _descriptor(sys.stdout)
    process = subprocess.Popen(
        command,
        env=variables,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE if out is None else out,
        stderr=None if _descriptor(sys.stderr) is not None else subprocess.DEVNULL,
        start_new_session=True,  # so that it has no terminal to type into
    )
    try:
        said, _ = process.communicate(timeout=limits.seconds)
    except subprocess.TimeoutExpired:
        raise _stopped("time", f"at most {limits.seconds / 3600:g} h", "more", "--hours") from None
    except BaseException:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGINT)  # a terminal's Ctrl-C does not reach another session
        with suppress(subprocess.TimeoutExpired):
            process.wait(_GRACE_SECONDS)
        raise
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    if said:
        sys.stdout.write(said.decode("utf-8", "backslashreplace"))  # what the child's own printing room wrote
    if process.returncode < 0:
        name = signal.Signals(-process.returncode).name
        raise _stopped("memory or time", f"at most {limits.memory / 2**30:.1f} GiB", name, "--memory or --hours")
    return process.returncode


def _stopped(what: str, expected: str, found: str, option: str) -> MarinError:
    return SealedProcessStopped(
        f"the confined verification ran out of {what}",
        where="marin verify",
        expected=expected,
        found=found,
        cure=f"{option} gives it more",
    )


class SealedProcessStopped(MarinError):
    """The child did not end by itself: no verdict."""

    exit_code = 3


def _descriptor(stream: IO[str]) -> int | None:
    try:
        return stream.fileno()
    except (OSError, ValueError):
        return None


@contextmanager
def _appending(own: Root, entry: Entry, path: Path) -> Iterator[None]:
    """While entered, append to ``own`` what ``entry`` takes of what the child says, and nothing else."""

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            answer: dict[str, Any]
            try:
                receipts = own.append(entry.drafts(self.rfile.readline(_MOST_REQUEST)))
                answer = {"receipts": [list(receipt) for receipt in receipts]}
            except ledger.LedgerError as error:
                answer = {"error": str(error)}
            self.wfile.write(json.dumps(answer).encode() + b"\n")

    class Server(socketserver.UnixStreamServer):
        def handle_error(self, request: object, client_address: object) -> None:
            """The child is gone."""

    with ledger.in_thread(Server(str(path), Handler)):
        yield


class _Offered(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A draft as the child sends it."""

    type: str
    stream: str
    body: dict[str, Any]
    id: str | None


class Entry:
    """The door to the verifier's own log: what a verification found out about the one run that it was asked for.

    The parent does not read the root, so it knows of the run what the user called it. A beginning of an id, or
    ``latest``, may fit several: the first draft says which one it is, and nothing is taken of another one after it.
    """

    def __init__(self, name: str) -> None:
        self._name = "" if name == LATEST else name
        self._run: str | None = None

    def drafts(self, request: bytes) -> list[ledger.Draft]:
        """What a request of the child says, to be appended.

        Raises:
            ledger.Refused: one of the drafts is not a replay verdict, or of another run, or not in the stream of its kind.
            MarinError: its body does not fit its type.
        """
        try:
            offered = msgspec.json.decode(request, type=list[_Offered])
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise _refused_draft("verdicts on a replay", str(error)) from None
        if len(offered) > _MOST_DRAFTS:
            raise _refused_draft(f"at most {_MOST_DRAFTS} events", str(len(offered)))
        known = self._run
        for found in map(_run_of, offered):
            known = known or found
            if found != known or not found.startswith(self._name):
                raise _refused_draft(f"run {self._run or self._name or known}", f"run {found}")
        self._run = known
        return [ledger.Draft(item.type, item.stream, item.body, id=item.id) for item in offered]


def _run_of(offered: _Offered) -> str:
    """The run that a verdict is about, which its body and its stream agree on."""
    if offered.type == type_of(ReplayCompleted):
        run = read(ReplayCompleted, offered.body, where="a verdict").run
        stream = stream_of(run)
    elif offered.type == type_of(ReplaySegment):
        run = read(ReplaySegment, offered.body, where="a verified segment").run
        stream = replay_stream(run)
    else:
        raise _refused_draft(f"{type_of(ReplayCompleted)} or {type_of(ReplaySegment)}", offered.type)
    if offered.stream != stream:
        raise _refused_draft(f"stream {stream}", offered.stream)
    return run


def _refused_draft(expected: str, found: str) -> ledger.Refused:
    return ledger.Refused(
        "a verification appends what it found out about the run that it was asked for",
        where="record",
        expected=expected,
        found=found,
        cure="verify another run, or the phase before, by its own id",
    )
