"""Which code is a step's: what it reaches counts, what stands beside it does not."""

from __future__ import annotations

import ast
import functools
import importlib
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from marin.errors import UsageError
from marin.graph.closure import closure_of, statements_of
from tests.marin.graph.conftest import Write

FILE = """
    import neighbour
    from neighbour import other as renamed
    CONSTANT = 3

    def helper(x: int) -> int:
        \"\"\"Words.\"\"\"
        return x + CONSTANT

    def work(context: Context) -> object:
        return helper(context.config["x"])

    def lazy(context):
        import neighbour
        return neighbour.VALUE

    def beside(context):
        return 0
"""


def closures(path: Path, name: str = "exp_test") -> dict[str, dict[str, str]]:
    sys.path.insert(0, str(path.parent))
    try:
        for module in (name, "neighbour"):
            sys.modules.pop(module, None)
        importlib.invalidate_caches()
        module = importlib.import_module(name)
        return {key: dict(closure_of(getattr(module, key)).parts) for key in ("work", "lazy", "beside")}
    finally:
        sys.path.remove(str(path.parent))


@pytest.fixture
def changed(write: Write) -> Any:
    """Which of three functions change when this text is put for that in a file."""
    (write(FILE).parent / "neighbour.py").write_text("import deeper\nVALUE = 1\ndef other(): return 1\n")
    (write(FILE).parent / "deeper.py").write_text("DEEP = 1\n")

    def change(old: str, new: str, file: str = "exp_test") -> set[str]:
        path = write(FILE)
        before = closures(path)
        target = path.parent / f"{file}.py"
        text = target.read_text()
        assert old in text
        target.write_text(text.replace(old, new))
        after = closures(path)
        target.write_text(text)
        return {name for name in before if before[name] != after[name]}

    return change


def test_what_a_function_reaches_is_its_code(changed: Any) -> None:
    assert changed("CONSTANT = 3", "CONSTANT = 4") == {"work"}
    assert changed("x + CONSTANT", "CONSTANT - x") == {"work"}
    assert changed("return 0", "return 1") == {"beside"}
    assert changed("VALUE = 1", "VALUE = 2", "neighbour") == {"lazy"}
    assert changed("DEEP = 1", "DEEP = 2", "deeper") == {"lazy"}


def test_what_decides_nothing_is_no_code(changed: Any) -> None:
    assert changed("Words.", "Other words.") == set()
    assert changed("(x: int) -> int", "(x: float) -> object") == set()
    assert changed("return 0", "return 0  # a remark") == set()
    assert changed("CONSTANT = 3", "CONSTANT = 3\nUNUSED = 1\n") == set()


def test_a_statement_that_is_no_definition_counts_for_all(changed: Any) -> None:
    assert changed("CONSTANT = 3", "CONSTANT = 3\nprint('once')\n") == {"work", "lazy", "beside"}


def test_a_loop_that_collects_steps_is_no_code_of_theirs(changed: Any) -> None:
    loop = "CONSTANT = 3\nfound = []\nfor number in range(3):\n    last = [number, CONSTANT]\n    found.append(last)\n"
    assert changed("CONSTANT = 3", loop) == set()
    assert changed("CONSTANT = 3", loop.replace("found.append(last)", "CONSTANT += number")) == {"work"}
    assert changed("CONSTANT = 3", loop.replace("found.append(last)", "os.environ['X'] = '1'")) == {
        "work",
        "lazy",
        "beside",
    }
    assert changed("CONSTANT = 3", loop.replace("found.append(last)", "print(last)")) == {"work", "lazy", "beside"}


def test_a_neighbour_with_a_name_of_the_standard_library_is_code(write: Write) -> None:
    """An experiment's folder is the first where Python looks: ``import colorsys`` executes the neighbour."""
    path = write(FILE.replace("return 0", "import colorsys, json; return colorsys, json"))
    for name in ("neighbour", "colorsys"):
        (path.parent / f"{name}.py").write_text("VALUE = 1\ndef other(): return 1\n")
    assert set(closures(path)["beside"]) == {"exp_test.py::beside", "colorsys.py"}


def test_a_file_replaced_within_one_tick_of_the_clock_is_another(write: Write) -> None:
    """What is kept of a file is kept for its bytes: an earlier time of change says nothing of them."""
    path = write(FILE)
    neighbour, deeper = (path.parent / f"{name}.py" for name in ("neighbour", "deeper"))
    neighbour.write_text("VALUE = 1\ndef other(): return 1\n")
    deeper.write_text("DEEP = 1\n")
    before = closures(path)
    for file, text in (
        (neighbour, "import deeper\nVALUE = 1\ndef other(): return 1\n"),
        (path, path.read_text().replace("return 0", "return 1")),
    ):
        times = file.stat()
        file.write_text(text)
        os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
    after = closures(path)
    assert "deeper.py" in after["lazy"] and "deeper.py" not in before["lazy"]
    assert before["beside"] != after["beside"]


@pytest.mark.parametrize(
    "block",
    [
        "if TYPE_CHECKING:\n    pass\nelse:\n    import neighbour",
        "if not TYPE_CHECKING:\n    import neighbour",
        "if TYPE_CHECKING or True:\n    import neighbour",
        "if __name__ == '__main__':\n    pass\nelse:\n    import neighbour",
        "if __name__ != '__main__':\n    import neighbour",
    ],
)
def test_what_a_condition_of_the_module_executes_is_code(changed: Any, block: str) -> None:
    """Only what no import of the file executes is left out: the rest of such a block counts for all."""
    text = "CONSTANT = 3\nfrom typing import TYPE_CHECKING\n"
    assert changed("CONSTANT = 3", f"{text}{block}\n") == {"work", "lazy", "beside"}
    for condition in ("TYPE_CHECKING", "__name__ == '__main__'"):
        assert changed("CONSTANT = 3", f"{text}if {condition}:\n    import deeper\n") == set()


def test_an_assignment_that_changes_something_beside_its_name_counts_for_both(changed: Any) -> None:
    assert changed("CONSTANT = 3", "CONSTANT = [3]\n_, CONSTANT[0] = 1, 4\n") == {"work"}
    table = "CONSTANT = 3\nTABLE = {}\n"
    assert changed("CONSTANT = 3", table + "TABLE['x'] = last = CONSTANT\n") == set()
    assert changed("CONSTANT = 3", table + "last = neighbour.VALUE = 4\n") == {"work", "lazy", "beside"}


def test_a_module_of_the_package_counts_with_all_it_imports() -> None:
    from marin.execution.phases import successor
    from marin.reporting.experiment import draw

    assert set(closure_of(draw).parts) >= {
        "marin/reporting/experiment.py::draw",
        "marin/reporting/experiment.py::COLOURS",
    }
    parts = closure_of(successor).parts
    assert {"marin/recipe/schema.py", "marin/data/mixture.py", "marin/__init__.py"} <= set(parts)
    assert not any(part.startswith(("ledger/", "marin/graph/", "/")) for part in parts)


def _draws(context: object) -> object:
    from marin.reporting.experiment import Report

    return Report


def test_the_templates_of_a_page_count_with_the_code_that_draws_it() -> None:
    parts = set(closure_of(_draws).parts)
    assert parts >= {"marin/reporting/experiment.py", "marin/reporting/templates/experiment.html.j2"}


def test_what_no_other_process_could_find_is_refused() -> None:
    captured = 3

    def closure(context: object) -> object:
        return captured

    class Callable:
        def __call__(self, context: object) -> object:
            return None

    with pytest.raises(UsageError, match=r"captures variables.*captured"):
        closure_of(closure)
    with pytest.raises(UsageError, match="not a plain function"):
        closure_of(functools.partial(print))
    with pytest.raises(UsageError, match="not a plain function"):
        closure_of(Callable())
    namespace: dict[str, Any] = {"__name__": "__main__"}
    exec(compile("def cell(context): return 1", "<ipython-input-1>", "exec"), namespace)
    with pytest.raises(UsageError, match=r"has no file.*move it into a module"):
        closure_of(namespace["cell"])


def test_an_import_is_found_wherever_it_stands() -> None:
    """In every kind of block that the grammar has."""
    places = [
        "def f(): {}",
        "async def f(): {}",
        "class C: {}",
        "if x: {}",
        "if x: pass\nelse: {}",
        "while x: {}",
        "while x: pass\nelse: {}",
        "for x in y: {}",
        "for x in y: pass\nelse: {}",
        "with x: {}",
        "try: {}\nfinally: pass",
        "try: pass\nexcept E: {}",
        "try: pass\nexcept E: pass\nelse: {}",
        "try: pass\nfinally: {}",
        "try: pass\nexcept* E: {}",
        "match x:\n    case 1: {}",
        "async def f():\n    async with x: {}",
        "async def f():\n    async for x in y: {}",
    ]
    text = "\n".join(place.format(f"import far_{number}") for number, place in enumerate(places))
    tree = ast.parse(text)
    found = [node for node in statements_of(tree) if isinstance(node, ast.Import)]
    assert sorted(node.names[0].name for node in found) == sorted(f"far_{number}" for number in range(len(places)))
    assert len(found) == sum(isinstance(node, ast.Import) for node in ast.walk(tree))
