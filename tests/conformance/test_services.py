"""The stand-ins for cloud services behave as their clients need: obstore, gcsfs, TensorStore, plain http."""

import urllib.error
import urllib.request
from datetime import timedelta

import numpy as np
import obstore
import pytest
from buckets import Bucket, Mirror
from http_faults import Fault
from obstore.exceptions import BaseError
from obstore.store import from_url


def quick(bucket: Bucket):
    return from_url(
        bucket.url,
        client_options={"timeout": timedelta(seconds=0.3), "allow_http": True},
        retry_config={
            "max_retries": 2,
            "retry_timeout": timedelta(seconds=9),
            "backoff": {"init_backoff": timedelta(milliseconds=1), "max_backoff": timedelta(milliseconds=2), "base": 2},
        },
    )


def test_generations_and_preconditions(gcs: Bucket) -> None:
    store = from_url(gcs.url)
    first = obstore.put(store, "a", b"1", mode="create")
    with pytest.raises(obstore.exceptions.AlreadyExistsError):
        obstore.put(store, "a", b"2", mode="create")
    second = obstore.put(store, "a", b"2", mode={"version": first["version"]})
    assert int(second["version"]) > int(first["version"])
    with pytest.raises(obstore.exceptions.PreconditionError):
        obstore.put(store, "a", b"3", mode={"version": first["version"]})
    assert bytes(obstore.get(store, "a").bytes()) == b"2"


def test_pages_and_offsets(bucket: Bucket) -> None:
    store = from_url(bucket.url)
    if bucket.stub is not None:
        bucket.stub.page = 3
    names = [f"n/{index:02d}" for index in range(10)] + ["o/z", "o/é"]
    for name in names:
        obstore.put(store, name, b"")
    assert [item["path"] for chunk in obstore.list(store) for item in chunk] == names
    assert [item["path"] for chunk in obstore.list(store, prefix="n", offset="n/06") for item in chunk] == names[7:10]
    shallow = obstore.list_with_delimiter(store)
    assert sorted(shallow["common_prefixes"]) == ["n", "o"]


def test_a_large_object_appears_when_it_is_complete(bucket: Bucket) -> None:
    store = from_url(bucket.url)
    data = bytes(range(256)) * (12 << 12)
    bucket.service.faults.add(Fault.STATUS, method="POST", path="uploadId", status=400)
    with pytest.raises(BaseError):
        obstore.put(store, "large", data, chunk_size=5 << 20, use_multipart=True)
    with pytest.raises(FileNotFoundError):
        obstore.head(store, "large")
    bucket.service.faults.clear()
    obstore.put(store, "large", data, chunk_size=5 << 20, use_multipart=True)
    assert bytes(obstore.get_range(store, "large", start=len(data) - 5, end=len(data))) == data[-5:]


@pytest.mark.table
@pytest.mark.parametrize("fault", [Fault.STATUS, Fault.HANG, Fault.CUT])
def test_faults_reach_the_client_and_pass_with_a_retry(bucket: Bucket, fault: Fault) -> None:
    store = quick(bucket)
    obstore.put(store, "a", b"0123456789")
    bucket.service.faults.add(fault, method="GET", path="/a")
    with pytest.raises(BaseError):
        obstore.get(store, "a").bytes()
    bucket.service.faults.clear()
    assert bytes(obstore.get(store, "a").bytes()) == b"0123456789"
    bucket.service.faults.add(fault, method="GET", path="/a", times=1)
    if fault is not Fault.CUT:
        assert bytes(obstore.get(store, "a").bytes()) == b"0123456789"


def test_wrong_and_missing_bytes(bucket: Bucket) -> None:
    store = quick(bucket)
    obstore.put(store, "a", b"0123456789")
    bucket.service.faults.add(Fault.WRONG, method="GET", path="/a", times=1)
    bucket.service.faults.add(Fault.SHORT, method="GET", path="/a", times=1)
    assert bytes(obstore.get(store, "a").bytes()) == b"0123446789"
    assert bytes(obstore.get(store, "a").bytes()) == b"012345678"


def test_an_answer_that_is_lost(bucket: Bucket) -> None:
    bucket.service.faults.add(Fault.STATUS_AFTER, method="PUT", path="/a", times=1)
    obstore.put(quick(bucket), "a", b"kept")
    assert len(bucket.service.asked("PUT", "/a")) == 2


def test_gcsfs(gcs: Bucket) -> None:
    import gcsfs

    files = gcsfs.GCSFileSystem(token="anon", endpoint_url=gcs.service.address, skip_instance_cache=True)
    files.pipe_file(f"{gcs.name}/d/a b+ü", b"small")
    with files.open(f"{gcs.name}/large", "wb", block_size=1 << 18) as stream:
        stream.write(b"x" * 600_000)
    assert files.cat_file(f"{gcs.name}/d/a b+ü") == b"small"
    assert files.cat_file(f"{gcs.name}/large", start=599_998) == b"xx"
    assert files.find(gcs.name) == [f"{gcs.name}/d/a b+ü", f"{gcs.name}/large"]
    assert [entry["type"] for entry in files.ls(gcs.name, detail=True)] == ["directory", "file"]
    files.copy(f"{gcs.name}/large", f"{gcs.name}/copy")
    files.rm_file(f"{gcs.name}/large")
    assert not files.exists(f"{gcs.name}/large")
    assert files.info(f"{gcs.name}/copy")["size"] == 600_000


def test_tensorstore(gcs: Bucket) -> None:
    import tensorstore

    spec = {"driver": "zarr3", "kvstore": {"driver": "gcs", "bucket": gcs.name, "path": "array/"}}
    made = tensorstore.open(spec, create=True, dtype=tensorstore.uint32, shape=[100, 7]).result()
    values = np.arange(700, dtype=np.uint32).reshape(100, 7)
    made.write(values).result()
    assert np.array_equal(tensorstore.open(spec).result().read().result(), values)
    keys = tensorstore.KvStore.open(f"{gcs.url}/array/").result().list().result()
    assert b"zarr.json" in keys


def test_a_published_folder(mirror: Mirror) -> None:
    (mirror.folder / "a").write_bytes(b"published")
    with urllib.request.urlopen(f"{mirror.url}/a") as reply:
        assert reply.read() == b"published"
    with pytest.raises(urllib.error.HTTPError):
        urllib.request.urlopen(f"{mirror.url}/b")
