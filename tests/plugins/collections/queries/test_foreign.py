"""A collection that somebody else made: whatever stands in it, a report or an answer comes of it or one error that names it."""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ledger import Store
from marin.errors import DataError
from marin.plugins.collections.build import BuildRequest, build
from marin.plugins.collections.page import page
from marin.plugins.collections.queries.account import account
from marin.plugins.collections.queries.documents import Collection, find
from marin.plugins.collections.settings import settings_of
from tests.plugins.collections.making import root_of

EVIL = "<script>alert(1)</script><img src=x onerror=alert(2)>\"'\u202e\x1b[31m"
Change = Callable[[Path], object]


@pytest.fixture
def made(project: Path) -> Collection:
    """One with a quality classifier, texts that are changed behind it, and a copy."""
    texts = [f"Verse {n} of this song is sung by all of us.\nWrite to us{n}@example.org if you can." for n in range(12)]
    texts += texts[:1]
    for name in ("a", "good", "bad"):
        (project / f"{name}.jsonl").write_text("\n".join(json.dumps({"text": f"{text} {name}"}) for text in texts))
    quality = {
        "kind": "quality",
        "good": [f"{project}/good.jsonl"],
        "bad": [f"{project}/bad.jsonl"],
        "bits": 8,
        "threshold": 0.01,
    }
    settings = settings_of({"steps": [quality, {"kind": "pii"}], "near": None}, where="here")
    root = root_of(project)
    return Collection(root.store(), build(root, BuildRequest((f"{project}/a.jsonl",), settings=settings)).artifact)


def altered(collection: Collection, folder: Path, change: Change) -> Collection:
    store: Store = collection.store
    store.checkout(collection.artifact, folder, how="copy")
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    change(folder)
    made = store.put_tree(folder).digest
    shutil.rmtree(folder)
    return Collection(store, made)


def told(change: Callable[[dict[str, Any]], object]) -> Change:
    """The description, changed."""

    def edit(folder: Path) -> None:
        found = json.loads((folder / "collection.json").read_bytes())
        change(found)
        (folder / "collection.json").write_text(json.dumps(found))

    return edit


def column(files: str, name: str, value: object, kind: pa.DataType | None = None) -> Change:
    """One value in all rows of a column."""

    def edit(folder: Path) -> None:
        for path in folder.glob(f"{files}/*.parquet"):
            table = pq.read_table(path)
            place = table.schema.get_field_index(name)
            values = pa.array([value] * len(table), kind or table.schema.field(name).type)
            pq.write_table(table.set_column(place, name, values), path)

    return edit


def ill(files: str, name: str) -> Change:
    """A column of texts that are no texts."""
    return lambda folder: [
        pq.write_table(
            table.set_column(place, name, pa.array([b"\xff"] * len(table), kind).view(table.schema.types[place])), path
        )
        for path in folder.glob(f"{files}/*.parquet")
        for table in [pq.read_table(path)]
        for place in [table.schema.get_field_index(name)]
        for kind in [pa.large_binary() if pa.types.is_large_string(table.schema.types[place]) else pa.binary()]
    ]


REFUSED: dict[str, Change] = {
    "a description that nests without end": lambda folder: (folder / "collection.json").write_text("[" * 100_000),
    "a description of nothing": lambda folder: (folder / "collection.json").write_text('{"kind": "documents"}'),
    "no settings": told(lambda said: said.update(settings=None)),
    "steps without a kind": told(lambda said: said["settings"].update(steps=[{}])),
    "a kind that is a list": told(
        lambda said: said["settings"].update(steps=[{"kind": []}, *said["settings"]["steps"]])
    ),
    "a count that is markup": told(lambda said: said["documents"].update(read=EVIL)),
    "problems that are no counts": told(lambda said: said.update(problems={EVIL: EVIL})),
    "no shards": told(lambda said: said.update(shards=None)),
    "evidence that is a list": column("decisions", "evidence", "[1]"),
    "evidence that nests": column("decisions", "evidence", '{"a": [[1]]}'),
    "evidence that nests without end": column("decisions", "evidence", "[" * 100_000),
    "evidence that is no JSON": column("decisions", "evidence", "{"),
    "evidence that is no number": column("decisions", "evidence", '{"a": NaN}'),
    "evidence beyond all numbers": column("decisions", "evidence", '{"a": 1e999}'),
    "no evidence": column("decisions", "evidence", None),
    "decisions about nothing": column("decisions", "id", None),
    "ids that are numbers": column("decisions", "id", 5, pa.int64()),
    "reasons that are no text": ill("decisions", "reason"),
    "positions that are no numbers": column("listing", "position", "x", pa.string()),
    "sizes that are no numbers": column("listing", "bytes", "x", pa.string()),
    "documents without a text": column("documents", "text", None),
    "documents that are no text": ill("documents", "text"),
    "metadata that is a list": column("documents", "metadata", "[1]"),
    "a file that is no Parquet": lambda folder: [path.write_bytes(b"PAR1") for path in folder.glob("listing/*")],
    "a file with a footer of zeros": lambda folder: [
        path.write_bytes(b"PAR1" + bytes(100) + b"\x40\0\0\0PAR1") for path in folder.glob("listing/*")
    ],
}


@pytest.fixture
def hostile(made: Collection, tmp_path: Path) -> Callable[[Change], Collection]:
    return lambda change: altered(made, tmp_path / "altered", change)


def test_another_form_is_one_error(hostile: Callable[[Change], Collection]) -> None:
    wrong = {}
    for name, change in REFUSED.items():
        try:
            account(hostile(change))
        except DataError:
            continue
        except Exception as error:
            wrong[name] = repr(error)[:100]
        else:
            wrong[name] = "a report"
    assert wrong == {}


@pytest.mark.parametrize("name", ["no evidence", "evidence that is a list", "positions that are no numbers"])
def test_an_answer_about_a_document_ends_in_the_same_error(
    made: Collection, hostile: Callable[[Change], Collection], name: str
) -> None:
    (document, *_) = [row["id"] for row in made.documents(("id",))]
    with pytest.raises(DataError):
        list(find(hostile(REFUSED[name]), document))
    with pytest.raises(DataError):
        list(hostile(ill("documents", "source")).documents(("id", "source")))


def test_markup_in_any_text_is_text(hostile: Callable[[Change], Collection]) -> None:
    for change in (
        column("decisions", "evidence", json.dumps({EVIL: EVIL})),
        column("decisions", "reason", EVIL),
        column("decisions", "id", EVIL),
        column("decisions", "step", EVIL),
        column("listing", "url", EVIL),
        column("documents", "split", EVIL),
        column("documents", "metadata", json.dumps({"licence": EVIL, "license": EVIL})),
        told(lambda said: said.update(problems={EVIL: 3})),
        told(lambda said: said["sources"][0].update(name=EVIL, digest=EVIL)),
    ):
        html = page(account(hostile(change))).decode()
        assert not [bad for bad in ("<script", "<img", "\u202e", "\x1b") if bad in html]


def _saved(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def _header(header: str) -> bytes:
    line = header.ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + len(line).to_bytes(2, "little") + line.encode()


MODELS = {
    "nothing": b"",
    "a pickle": b"\x80\x04cos\nsystem\n(S'touch owned'\ntR.",
    "too few weights": _saved(np.zeros(3, np.int64)),
    "one weight": _saved(np.zeros((), np.int64)),
    "weights that are no numbers": _saved(np.full(257, np.nan)),
    "texts": _saved(np.full(257, "abc")),
    "terabytes": _header("{'descr': '<i8', 'fortran_order': False, 'shape': (1000000000000,), }"),
    "a header that nests without end": b"\x93NUMPY\x01\x00" + (9000).to_bytes(2, "little") + b"(" * 9000,
}


def test_a_model_that_is_none_of_its_settings_is_not_asked(
    made: Collection, hostile: Callable[[Change], Collection]
) -> None:
    shown = account(made).changes["rule:pii"][0]
    assert "|||EMAIL_ADDRESS|||" in shown.put[0]
    for data in MODELS.values():
        other = hostile(lambda folder, data=data: (folder / "models" / "steps-0.npy").write_bytes(data))  # type: ignore[misc]
        (change, *_) = account(other).changes["rule:pii"]
        assert (change.taken, change.put) == ((), ())
        (one,) = find(other, shown.id)
        assert "sum" not in next(said["evidence"] for said in one.decisions if said["step"] == "quality")
