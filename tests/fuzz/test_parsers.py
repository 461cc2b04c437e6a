"""Any bytes give a value or an error of our own tree, in memory and time that their size bounds.

Inputs are valid ones, changed by Hypothesis: bytes flipped, cut out, doubled, numbers made huge, other inputs spliced
in, nested deeper. `make fuzz` tries thousands of each instead of twenty-five (`MARIN_FUZZ`), and other ones at each run.
"""

from __future__ import annotations

import ast
import os
import re
import tracemalloc
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ledger.errors import LedgerError

from .parsers import PROJECT, Parser, of_plugins, parsers

EXAMPLES = int(os.environ.get("MARIN_FUZZ", "25"))
MEMORY = 64 << 20
LARGEST = 1 << 20
PIECES = [
    b"0",
    b"-1",
    b"00",
    b"65536",
    b"4294967296",
    b"18446744073709551616",
    b"9" * 400,
    b"1e999",
    b"1" + b"0" * 5000,
    b"\xff\xff\xff\xff",
    b"\n",
    b"\n\n",
    "— ".encode(),
    b"+",
    b"=",
    b"\x00",
    b"\xff",
    b"{",
    b"[" * 200,
    b'"',
    b"\\u0000",
    b'"\\ud800"',
    b" ",
    b"/v1",
    b"NaN",
    b"null",
    b"true",
    b"[]",
    b"{}",
    b'""',
    b"1.5",
    b"../",
    b"&a [*a,*a]",
    b"!!python/x ",
]
TABLE = {parser.name: parser for parser in [*parsers(), *of_plugins()]}

_edit = st.tuples(
    st.integers(0, 6), st.integers(0, 1 << 16), st.sampled_from([0, 1, 2, 8, 300]), st.integers(0, 1 << 16)
)


@cache
def others() -> list[bytes]:
    """Valid inputs of all parsers. Not made while tests are collected: a process that has used TensorStore cannot be forked."""
    return [seed for parser in TABLE.values() for seed in parser.seeds()]


def edited(data: bytes, kind: int, where: int, length: int, choice: int) -> bytes:
    at = where % (len(data) + 1)
    end = min(len(data), at + length)
    match kind:
        case 0 if at < len(data):
            return data[:at] + bytes([data[at] ^ (1 << choice % 8)]) + data[at + 1 :]
        case 1:
            return data[:at] + data[end:]
        case 2:
            return data[:at] + data[at:end] * (2, 3, 50)[choice % 3] + data[end:]
        case 3 | 4:
            return data[:at] + PIECES[choice % len(PIECES)] + data[at if kind == 3 else end :]
        case 5:
            other = others()[choice % len(others())]
            return data[:at] + other[where % (len(other) + 1) :]
        case 6:
            # A whole JSON value or number for another.
            found = list(re.finditer(rb'"[^"]*"|-?[0-9.]+|\[\]|\{\}|null|true|false', data))
            if found:
                chosen = found[where % len(found)]
                return data[: chosen.start()] + PIECES[choice % len(PIECES)] + data[chosen.end() :]
    return data[:at]


def held(parser: Parser, data: bytes) -> None:
    """The property."""
    try:
        parser.call(data)
    except LedgerError as error:
        assert "\n" not in str(error)


@pytest.mark.parametrize("name", TABLE)
def test_valid_inputs_and_those_that_once_broke_it(name: str):
    parser = TABLE[name]
    seeds = parser.seeds()
    assert seeds
    for data in [*seeds, *parser.kept, b"", b"\x00", b"{}", b"[]", b"null", b'{"a":' * 50]:
        held(parser, data)


@pytest.mark.parametrize("name", TABLE)
def test_changed_inputs_give_a_value_or_our_own_error(name: str):
    parser, seeds = TABLE[name], TABLE[name].seeds()

    @settings(
        max_examples=EXAMPLES,
        database=None,
        derandomize="MARIN_FUZZ" not in os.environ,
        suppress_health_check=list(HealthCheck),
    )
    @given(st.sampled_from(seeds), st.lists(_edit, min_size=1, max_size=4), st.binary(max_size=40))
    def run(seed: bytes, edits: list[tuple[int, int, int, int]], raw: bytes) -> None:
        data = seed
        for edit in edits:
            data = edited(data, *edit)[:LARGEST]
        held(parser, data)
        held(parser, raw)

    run()


@pytest.mark.parametrize("name", TABLE)
def test_claimed_lengths_and_depths_take_no_memory(name: str):
    parser = TABLE[name]
    first = parser.seeds()[0]
    hostile = [
        b"[" * parser.deepest,
        b'{"a":' * 20_000,
        b"9" * 40_000,
        b"\xff" * 200_000,
        b"\n" * 40_000,
        b"+" * 40_000,
        (first * 500)[:300_000],
        "— a ".encode() * 10_000,
        b"x000/" * 10_000,
    ]
    hostile += [first[:at] + b"\xff" * 8 + first[at + 8 :] for at in range(0, 32, 4)]
    for whole in hostile:
        data = whole[: parser.most]
        tracemalloc.start()
        try:
            held(parser, data)
        finally:
            _, peak = tracemalloc.get_traced_memory()
            tracemalloc.stop()
        assert peak < MEMORY + 40 * len(data), (name, data[:20], peak)


# Which functions have to be in the table

_NAME = re.compile(r"(parse|decode|read|load|unpack|open)(_|$)")
ROOMS = (
    "ledger/format",
    "ledger/log",
    "ledger/mirror",
    "ledger/service",
    "ledger/store",
    "ledger/tensors",
    "ledger/witness",
    "marin/record",
    "marin/recipe",
    "marin/execution",
    "marin/history",
    "marin/data",
    "marin/provenance",
    "marin/evaluation",
    "marin/plugins",
    "marin/training",
)
NOT_FOREIGN = {
    "marin.provenance.plugins.load_plugin": "the name of an installed plugin",
    "marin.provenance.plugins.load_plugins": "the name of a group of installed plugins",
    "marin.plugins.rl.own_reward.read_reward": "the reader's own file of a reward",
    "marin.data.text.decode_line": "a line, for readers of lines, which are in the table",
    "marin.plugins.collections.sources.page.decode_page": "a page of a response, whose reader is in the table",
    "log.keys.load_signer": "the reader's own key",
    "log.keys.read_private": "the reader's own key",
    "log.vouching.keys.load_attestation_key": "the reader's own key",
    "marin.record.trust.joined.open_joined": "an address, parsed by split_address, and a file of the user's own",
    "marin.evaluation.folder_subject.open_folder": "a folder whose configuration is in the table; its tensors have one reader",
    "marin.data.borrowed.reference.read": "a folder, for transformers in a process of its own: its end is an answer too",
    "marin.data.tokenizer.read_settings": "settings and maps of special tokens are in the table, by those who read them so",
    "marin.record.trust.trusted.read_trusted": "a file of the verifier's own settings, in whatever form",
    "marin.data.network.fetching.open_gate": "a host's name, of an address that was parsed",
    "marin.plugins.evaluation.samples.task.read": "the reader's own file of prompts; what the store has of it is in the table",
    "marin.plugins.rl.prompts.read_file": "the reader's own file; what the store has of it is in the table",
    "marin.training.checkpoints.whole.load": "a folder whose files are in the table: packed state, zarr metadata",
    "marin.plugins.collections.steps.quality.Quality.open": "a model that a task of the same build wrote",
    "marin.plugins.mlflow.projection.shelf.Shelves.read": "a name, checked, in a database that this user's projection wrote",
    "marin.plugins.mlflow.stores.repository.MarinArtifactRepository.read_range": "a path in a manifest of the table",
    "marin.plugins.scale.hlo.Program.read": "a program that the compiler of this process wrote",
    "witness.monitoring.read_cosigned": "an address, whose answer is a checkpoint as the table has it",
    "service.remote_client.RemoteStorage.open": "a name, checked by check_name here and there; the answers are in the table",
    "service.remote_client.RemoteStorage.read": "a name, checked by check_name here and there; the answers are in the table",
    "service.remote_client.RemoteStorage.read_range": "a name, checked by check_name here and there",
    "store.blobs.blobs.Blobs.read": "a digest, checked by parse_digest",
    "store.blobs.blobs.Blobs.read_range": "a digest, checked by parse_digest",
    "store.blobs.blobs.Blobs.open": "a digest, checked by parse_digest",
    "store.trees.files.StoredFolder.read": "a path, looked up in a manifest that is in the table",
    "store.store.Store.open": "a digest, checked by parse_digest",
    "store.store.Store.open_file": "a digest, checked by parse_digest",
    "store.store.Store.open_range": "a digest, checked by parse_digest",
    "store.store.Store.read": "a digest, checked by parse_digest",
    "store.workers.fileworker.Slices.read": "a digest, in the process that packs",
}


@cache
def public_parsers() -> dict[str, Path]:
    """Public functions and methods whose name says that they read, and whose first argument is bytes, text or a path."""
    found = {}
    for room in ROOMS:
        for file in sorted((PROJECT / room).rglob("*.py")):
            module = file.relative_to(PROJECT).with_suffix("").as_posix().replace("/", ".").removeprefix("ledger.")
            for name, node in functions(ast.parse(file.read_text("utf-8"))):
                arguments = [a for a in node.args.args if a.arg not in ("self", "cls")]
                kind = ast.unparse(arguments[0].annotation) if arguments and arguments[0].annotation else ""
                if _NAME.match(node.name) and kind in ("bytes", "str", "Path", "Path | None"):
                    found[f"{module}.{name}"] = file
    return found


def functions(tree: ast.Module) -> Iterator[tuple[str, ast.FunctionDef]]:
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            yield node.name, node
        elif isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            for inner in node.body:
                if isinstance(inner, ast.FunctionDef):
                    yield f"{node.name}.{inner.name}", inner


def test_every_parser_is_fuzzed():
    covered = {name for parser in TABLE.values() for name in parser.covers}
    missing = sorted(set(public_parsers()) - covered - set(NOT_FOREIGN))
    assert missing == [], "add a line to tests/fuzz/parsers.py, or say in NOT_FOREIGN why nobody else makes its bytes"
    assert sorted(name for name in NOT_FOREIGN if name not in public_parsers()) == []
