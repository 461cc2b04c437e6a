"""DVC's own tests of remotes, over remotes that our exporter fills: run by `test_dvc.py` in a pytest of their own.

The classes are DVC's (`dvc.testing`, which is in its package so that authors of remotes run them); the functions are of the
tests in its source, whose folder MARIN_DVC_SOURCE names. One thing is changed: what DVC would push, `write_dvc` writes, from
outputs in a store of ours. All that reads the remote is DVC's: status, fetch, pull, its API and its file system. The remote is
set to `verify`, so DVC hashes each object that it takes.

MARIN_ALTERED=1 flips a bit in every object that was written: then every test that reads the remote has to fail.
"""

import os
import sys
from pathlib import Path

import pytest
from dvc.data_cloud import DataCloud
from dvc.repo import Repo
from dvc.testing.api_tests import TestAPI
from dvc.testing.fixtures import *  # noqa: F403
from dvc.testing.remote_tests import TestRemote
from dvc.testing.tmp_dir import TmpDir

from ledger import Store
from marin.plugins.sharing.dvc import REMOTE, write_dvc
from marin.record.events import Output
from tests.ledger.memory import MemoryStorage

sys.path.insert(0, os.environ["MARIN_DVC_SOURCE"])  # DVC itself is imported by now: the installed one
from tests.func.api.test_data import test_missing, test_open_granular
from tests.func.test_data_cloud import (
    test_fetch_stats,
    test_output_remote,
    test_output_target_remote,
    test_pull_allow_missing,
    test_pull_partial,
    test_pull_stats,
    test_target_remote,
)

__all__ = [
    "TestAPI",
    "TestRemote",
    "test_fetch_stats",
    "test_missing",
    "test_open_granular",
    "test_output_remote",
    "test_output_target_remote",
    "test_pull_allow_missing",
    "test_pull_partial",
    "test_pull_stats",
    "test_target_remote",
]


class Exported(TmpDir):
    @property
    def config(self):
        return {"url": self.url, "verify": True}


@pytest.fixture(scope="session")
def worker_id():
    """DVC's fixtures know pytest-xdist's."""
    return "master"


@pytest.fixture
def make_local(make_tmp_dir):
    """A cloud whose folder is where our exporter writes its remote."""
    return lambda: Exported(make_tmp_dir("exported") / REMOTE)


@pytest.fixture(autouse=True)
def exporting(monkeypatch):
    """What DVC pushes, we export."""

    def push(self, remote=None):
        outs = list(self.index.outs)
        for name in {out.remote for out in outs}:
            chosen = [out for out in outs if out.remote == name and name in (None, remote or name)]
            _export(self.cloud, chosen, remote or name)

    def push_objects(self, objs):
        _export(self, [out for out in self.repo.index.outs if out.hash_info in objs])

    monkeypatch.setattr(Repo, "push", push)
    monkeypatch.setattr(DataCloud, "push", push_objects)


def _export(cloud, outs, name=None):
    remote = Path(cloud.get_remote_odb(name).path)
    assert remote.parts[-3:] == (REMOTE, "files", "md5")
    dest = remote.parents[2]
    store, made = Store(MemoryStorage()), {}
    for out in outs:
        path = Path(out.fs_path)
        if path.exists():
            stored = store.put_tree(path) if path.is_dir() else store.put_file(path)
            made[path.name] = Output(kind="value", digest=stored.digest, size=stored.size, artifact=stored.digest)
    write_dvc(store, made, dest)
    if os.environ.get("MARIN_ALTERED"):
        for path in remote.rglob("*"):
            if path.is_file():
                data = bytearray(path.read_bytes() or b"\0")
                data[len(data) // 2] ^= 1
                path.chmod(0o644)
                path.write_bytes(data)
