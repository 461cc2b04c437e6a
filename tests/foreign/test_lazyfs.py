"""The power goes under log and store: LazyFS, a file system in user space that keeps nothing that was not synced.

LazyFS is built here from its source. It mounts with fuse3, which needs /dev/fuse; where that is not there, this skips.
The same cuts at every single system call, by a shim of our own, are in tests/fault/test_posix_faults.py.
"""

import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import contextmanager

import judges
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from programs import SECONDS

from ledger import Log, LogReader, PosixStorage, Signer, Store, check

SIGNER = Signer("log.example/cut", Ed25519PrivateKey.from_private_bytes(bytes(range(32))))
WRITER = """
import sys
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from ledger import Draft, Log, PosixStorage, Signer, Store
storage = PosixStorage(sys.argv[1])
signer = Signer("log.example/cut", Ed25519PrivateKey.from_private_bytes(bytes(range(32))))
store = Store(storage)
with Log.open(storage, signer, publish_seconds=0.05) as log:
    number = log.checkpoint.size
    while True:
        digest = store.put_bytes(b"artifact %d " % number * 50).digest
        receipt = log.append([Draft("t/v1", "s", {"artifact": digest})])[0]
        print(receipt.index, digest, flush=True)
        number += 1
"""

pytestmark = pytest.mark.skipif(
    not os.access("/dev/fuse", os.R_OK | os.W_OK), reason="/dev/fuse is not open to this user"
)


@contextmanager
def mounted(folder):
    """A LazyFS over `folder`: the mount, and a function that loses what was not synced."""
    mount, under, order, done = (folder / name for name in ("mount", "under", "order", "done"))
    for made in (mount, under):
        made.mkdir()
    os.mkfifo(done)
    answers = os.open(done, os.O_RDWR)  # held open: it would wait for a reader, and end when one leaves
    settings = f'[faults]\nfifo_path="{order}"\nfifo_path_completed="{done}"\n[cache]\napply_eviction=false\n'
    settings += (
        '[cache.simple]\ncustom_size="64mb"\nblocks_per_page=1\n[filesystem]\nlog_all_operations=false\nlogfile=""\n'
    )
    # It reads a configuration in its working folder and is given none else.
    (folder / "config").mkdir()
    conf = folder / "config/default.toml"
    conf.write_text(settings)
    options = ["-o", "modules=subdir", "-o", f"subdir={under}", "-f"]
    with (folder / "said").open("wb") as said:
        serving = subprocess.Popen([judges.lazyfs(), mount, *options], stdout=said, stderr=said, cwd=folder)
    try:
        deadline = time.monotonic() + SECONDS
        while not (os.path.ismount(mount) and order.exists()):
            assert serving.poll() is None, (folder / "said").read_text()
            assert time.monotonic() < deadline
            time.sleep(0.02)

        def cut():
            order.write_text("lazyfs::clear-cache\n")
            assert b"finished" in os.read(answers, 4096)

        yield mount, cut
    finally:
        unmount = judges.room("lazyfs") / "bin/fusermount3"
        subprocess.run([unmount, "-u", mount], check=False, timeout=SECONDS)
        serving.wait(SECONDS)
        os.close(answers)


def test_what_was_acknowledged_is_there_after_the_power_went(tmp_path, judge):
    judged = judge("LazyFS", judges.version("lazyfs")[:12])
    told = {}
    with mounted(tmp_path) as (mount, cut):
        # What is not synced is really lost here: otherwise the cuts below would show nothing.
        (mount / "unsynced").write_bytes(b"gone")
        cut()
        assert not (mount / "unsynced").exists() or (mount / "unsynced").read_bytes() != b"gone"
        root = mount / "root"
        Log.create(PosixStorage(root), SIGNER)
        for count in (1, 3, 20, 80, 7):
            command = [sys.executable, "-c", WRITER, root]
            with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
                for _ in range(count):
                    index, digest = writer.stdout.readline().split()
                    told[int(index)] = digest
                writer.send_signal(signal.SIGKILL)
            cut()
            storage = PosixStorage(root)
            with Log.open(storage, SIGNER):
                pass
            assert check(storage, [SIGNER.verifier]) == []
            reader = LogReader(storage, [SIGNER.verifier])
            assert reader.checkpoint().size > max(told)
            for index, event in reader.events():
                digest = event.body["artifact"]
                assert told.get(index, digest) == digest
                assert Store(storage).read(digest) == b"artifact %d " % index * 50
        shutil.rmtree(root)
    judged.accepts(
        f"a log and a store that lost power five times: {len(told)} acknowledged events and their artifacts are there"
    )
    judged.refuses("to keep a file that was not synced")
