"""DVC judges the remotes that `marin export --dvc` writes: by its own tests, its programs and its check of objects."""

import os
import re
import shutil
import sys
from importlib import metadata
from pathlib import Path

import judges
import pytest
from dvc_data.hashfile.db import HashFileDB
from dvc_objects.errors import ObjectFormatError
from dvc_objects.fs.local import LocalFileSystem
from programs import ask

from ledger import Store
from marin.plugins.sharing.dvc import REMOTE, write_dvc
from marin.record.events import Output
from tests.ledger.memory import MemoryStorage

MODEL = {
    "config.json": b'{"a": 1}\n',
    "sub/empty": b"",
    "sub/model.safetensors": bytes(range(256)) * 9999,
    "text.txt": b"a\r\nb",
}
OWN_TESTS = Path(__file__).with_name("dvc_tests.py")
APPLIES = "not test_stage_cache_push_pull"  # the run cache, which an exporter does not write
# Without those that find all they ask for in the working folder or in DVC's cache ("no_cache": a cache that is not emptied).
READING = f"{APPLIES} and not (test_get_url or test_open or test_missing or Everything or no_cache and not git)"


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """A folder as `marin export --dvc` fills it: a tree, a file, their pointers."""
    folder, store = tmp_path_factory.mktemp("exported"), Store(MemoryStorage())
    for name, data in MODEL.items():
        (folder / "made" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "made" / name).write_bytes(data)
    stored = {"export": store.put_tree(folder / "made"), "value": store.put_bytes(b"a value")}
    made = {
        name: Output(kind="value", digest=one.digest, size=one.size, artifact=one.digest)
        for name, one in stored.items()
    }
    write_dvc(store, made, folder / "dvc")
    return folder / "dvc"


@pytest.fixture(autouse=True)
def own_index(tmp_path, monkeypatch):
    """DVC keeps an index of remotes for a whole machine: here one of this test."""
    monkeypatch.setenv("DVC_SITE_CACHE_DIR", str(tmp_path / "site"))
    monkeypatch.setenv("DVC_NO_ANALYTICS", "1")


def objects(remote):
    return sorted(path for path in (remote / "files").rglob("*") if path.is_file())


def flip(path, place=-1):
    """One bit of an object; of an empty one, a byte more."""
    data = bytearray(path.read_bytes()) or bytearray(b"\0")
    data[place] ^= 1
    path.chmod(0o644)
    path.write_bytes(data)


def test_its_own_tests(judge, tmp_path):
    judged = judge("DVC's tests of remotes", metadata.version("dvc"))
    assert judges.version("dvc-tests") == metadata.version("dvc"), "the lock of judges has the tests of another DVC"
    source = judges.room("dvc-tests") / "dvc"

    def run(chosen, altered=None):
        # Without our settings and fixtures, and with `tests` being the folder of DVC's source.
        alone = ["-c", os.devnull, "--noconftest", "-p", "no:cacheprovider", "-p", "no:xdist"]
        command = [sys.executable, "-m", "pytest", "-q", *alone, OWN_TESTS]
        environment = {"PYTEST_ADDOPTS": "", "MARIN_DVC_SOURCE": str(source)} | (altered or {})
        status, said = ask(*command, "--basetemp", tmp_path / "own", "-k", chosen, env=environment, seconds=300)
        return status, said, {word: int(count) for count, word in re.findall(r"(\d+) (\w+)", said.splitlines()[-1])}

    status, said, counts = run(APPLIES)
    assert status == 0, said
    # DVC marks two of them as possible failures, for file systems that lack something: here they pass.
    passed = counts["passed"] + counts["xpassed"]
    assert (passed, counts["xpassed"]) == (28, 2), said
    judged.accepts(f"{passed} of its tests over remotes that our exporter filled instead of `dvc push`")

    status, said, counts = run(READING, {"MARIN_ALTERED": "1"})
    assert (status, counts.get("passed", 0), counts.get("xpassed", 0)) == (1, 0, 0), said
    assert counts["failed"] == 19, said
    judged.refuses(f"the {counts['failed']} of them that read objects, with one bit flipped in each object")


def test_its_programs(exported, judge, tmp_path):
    judged = judge("dvc", metadata.version("dvc"))
    dvc = Path(sys.executable).with_name("dvc")
    remote = shutil.copytree(exported / REMOTE, tmp_path / REMOTE)

    honest = tmp_path / "honest"
    honest.mkdir()
    assert ask(dvc, "init", "--no-scm", "-q", cwd=honest)[0] == 0
    # DVC hashes what it takes from a remote only where it is told to.
    (honest / ".dvc/config").write_text(
        f"[core]\nno_scm = true\nremote = marin\n['remote \"marin\"']\nurl = {remote}\nverify = true\n"
    )
    for pointer in exported.glob("*.dvc"):
        shutil.copy(pointer, honest)
    untouched = shutil.copytree(honest, tmp_path / "untouched")

    status, said = ask(dvc, "status", "-c", cwd=honest)
    assert (status, said.count("deleted:")) == (0, len(MODEL) + 1), said  # in the remote, and not here
    for command in (["fetch"], ["pull"]):
        status, said = ask(dvc, *command, cwd=honest)
        assert status == 0, said
    assert {
        path.relative_to(honest / "export").as_posix(): path.read_bytes() for path in files(honest / "export")
    } == MODEL
    assert (honest / "value").read_bytes() == b"a value"
    assert "in sync" in ask(dvc, "status", "-c", cwd=honest)[1]
    assert "up to date" in ask(dvc, "status", cwd=honest)[1]
    judged.accepts(
        "`status -c`, `fetch` and `pull` of a tree and a file from an exported remote; the files are the outputs"
    )

    for number, path in enumerate(objects(remote)):
        data = path.read_bytes()
        flip(path)
        folder = shutil.copytree(untouched, tmp_path / f"altered-{number}")
        status, said = ask(dvc, "pull", cwd=folder)
        assert status != 0, (path, said)
        path.write_bytes(data)
    judged.refuses(f"to pull it with one bit flipped in any of {number + 1} objects")


def files(folder):
    return [path for path in folder.rglob("*") if path.is_file()]


def test_its_check_of_objects(exported, judge, tmp_path):
    judged = judge("dvc-data", metadata.version("dvc-data"))
    remote = shutil.copytree(exported / REMOTE, tmp_path / REMOTE)
    database = HashFileDB(LocalFileSystem(), os.fspath(remote / "files/md5"))
    every = sorted(database.all())
    assert len(every) == len(objects(remote))
    for oid in every:
        assert database.check(oid).size == Path(database.oid_to_path(oid)).stat().st_size
    judged.accepts(f"{len(every)} objects of an exported remote, each by its hash")
    count = 0
    for oid in every:
        path = Path(database.oid_to_path(oid))
        data = path.read_bytes()
        for place in {0, len(data) // 2, -1} if data else {0}:
            path.write_bytes(data)
            flip(path, place)
            with pytest.raises(ObjectFormatError):
                database.check(oid)
            count += 1
    judged.refuses(f"{count} copies of them with one bit flipped or one byte more")
