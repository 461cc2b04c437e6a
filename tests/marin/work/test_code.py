"""A step's code is what it imports: nothing that decides bits is left out of its identity, nothing else is in it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.house import gauges
from marin.errors import MissingEvidence
from marin.execution.step import StepDefinition
from marin.pipeline.stages import PIPELINE
from marin.recipe.schema import Arithmetic, FilesDataset, Recipe
from marin.work import code
from marin.work.code import NEUTRAL, code_of, imported_names

PROJECT = Path(__file__).resolve().parents[3]
FILES_OF_THEIR_OWN = FilesDataset(globs=("x",))
BY_PLUGIN = {
    "grammar": Recipe(),
    "scale": Recipe(arithmetic=Arithmetic(gather="layer"), dataset=FILES_OF_THEIR_OWN),
    "exact": Recipe(arithmetic=Arithmetic(profile="exact"), dataset=FILES_OF_THEIR_OWN),
    "": Recipe(dataset=FILES_OF_THEIR_OWN),
}
"""A recipe for each plugin that executes steps, and one without any."""
RECIPES = [recipe for plugin, recipe in BY_PLUGIN.items() if plugin not in gauges.absent()]
STEPS = {path for step in PIPELINE.steps for recipe in RECIPES for path in step.code(recipe)}
FILES = [file for file in gauges.FILES if file.is_relative_to(PROJECT / "marin")]


def executed(node: ast.AST) -> Iterator[str]:
    """What a syntax tree says that is imported, in the words of `imported_names`."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and ast.unparse(child.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING"):
            continue
        if isinstance(child, ast.Import):
            yield from (alias.name for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            assert child.level == 0, "a file says by its whole name what it imports"
            yield child.module or ""
            yield from (f"{child.module}.{alias.name}" for alias in child.names)
        yield from executed(child)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.relative_to(PROJECT).as_posix())
def test_lines_say_of_imports_what_the_syntax_tree_says(file: Path) -> None:
    data = file.read_bytes()
    names = {name for name in executed(ast.parse(data)) if name == "marin" or name.startswith("marin.")}
    found = set(imported_names(data))
    assert found >= names
    if file.relative_to(PROJECT).as_posix() in STEPS:
        assert found == names, "an import in the example of a description counts too: write it without one"


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["", "    ", "\t"]),
            st.sampled_from(["marin.a", "marin.a.b", "marina", "json"]),
            st.lists(st.sampled_from(["c", "d as e", "f"]), min_size=1, max_size=3),
            st.booleans(),
            st.booleans(),
        ),
        max_size=5,
    )
)
def test_every_way_to_write_an_import_is_read(written: list[tuple[str, str, list[str], bool, bool]]) -> None:
    lines = ["from typing import TYPE_CHECKING", "if TYPE_CHECKING:", "    import marin.typed", ""]
    for indent, base, names, parentheses, several in written:
        if indent:
            lines.append("if lines:" if indent == "    " else "if lines :")
        listed = ", ".join(names)
        if parentheses:
            listed = "(\n" + "".join(f"        {name},  # why\n" for name in names) + "    )"
        lines.append(f"{indent}from {base} import {listed}" if not several else f"{indent}import {base}, marin.z as y")
    source = "\n".join([*lines, ""])
    names = {name for name in executed(ast.parse(source)) if name == "marin" or name.startswith("marin.")}
    assert set(imported_names(source.encode())) == names


@pytest.mark.parametrize("step", PIPELINE.steps, ids=lambda step: step.name)
def test_no_file_of_a_step_names_a_module_by_a_text(step: StepDefinition) -> None:
    """What would be imported so would not be seen."""
    found = [
        f"{path}: {node.value}"
        for path in {path for recipe in RECIPES for path in step.code(recipe)}
        for node in ast.walk(ast.parse((PROJECT / path).read_bytes()))
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and gauges.DOTTED.match(node.value)
        and gauges.module_file(node.value.partition(":")[0]) is not None
    ]
    assert found == []


def test_what_decides_no_bits_is_imported_by_some_step() -> None:
    whole = {name for step in PIPELINE.steps for one in RECIPES for path in step.code(one) for name in _files(path)}
    assert sorted({path for path in NEUTRAL if (PROJECT / path).is_file()} - whole - {"marin/__init__.py"}) == [], (
        "no step imports it: take it out of the list"
    )


def _files(path: str) -> Iterator[str]:
    for name in imported_names((PROJECT / path).read_bytes()):
        yield from (f"{name.replace('.', '/')}.py", f"{name.replace('.', '/')}/__init__.py")


def test_an_import_that_is_added_makes_another_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(code, "code_folder", lambda: tmp_path)
    folder = tmp_path / "marin" / "data"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text('"""Describes."""\n')
    (folder / "deep.py").write_text("")
    (folder / "first.py").write_text("def run():\n    from marin.data import deep\n")
    (folder / "step.py").write_text(
        "import json\n\nfrom marin.data.first import run\nfrom marin.errors import DataError\n"
    )
    assert code_of(["marin/data/step.py"]) == tuple(f"marin/data/{name}.py" for name in ("deep", "first", "step"))


def test_a_file_that_is_not_there_is_no_code(tmp_path: Path) -> None:
    with pytest.raises(MissingEvidence, match=r"marin/nowhere\.py"):
        code_of(["marin/nowhere.py"])
