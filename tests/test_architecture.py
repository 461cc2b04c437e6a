"""Who may enter whom: read from the syntax trees of all files, and from the modules that a process really loads."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise, product
from pathlib import Path

import pytest

import ledger
from bench.house import gauges
from tests.sources import nodes, parsed, parsed_once

__all__ = ["parsed_once"]

PROJECT = Path(__file__).resolve().parent.parent
PACKAGES = ("ledger", "marin", "experiments")
FILES = sorted(file for package in PACKAGES for file in (PROJECT / package).rglob("*.py"))

# package -> project packages that it may import
DIRECTIONS = {"ledger": {"ledger"}, "marin": {"marin", "ledger"}, "experiments": {"experiments", "marin"}}

COMPUTE = (
    *("marin/training/", "marin/evaluation/", "marin/verify/jax/", "marin/plugins/exact/"),
    *("marin/plugins/drafts/", "marin/plugins/evaluation/", "marin/plugins/explain/", "marin/plugins/rl/"),
    *("marin/plugins/scale/", "marin/plugins/serve/ranking.py"),
)

# top-level module -> the only folders or files that may import it, at the top or inside a function
CONFINED = {
    **dict.fromkeys(("jaxlib", "haliax", "equinox", "optax"), COMPUTE),
    **dict.fromkeys(("jax", "levanter"), (*COMPUTE, "marin/loops/levanter.py")),
    "ray": ("marin/plugins/ray/",),
    "lm_eval": ("marin/plugins/evaluation/",),
    "click": ("marin/cli/", "marin/plugins/"),
    "mlflow": ("marin/plugins/mlflow/",),
    "wandb": ("marin/plugins/wandb/",),
    "huggingface_hub": ("marin/data/network/hub.py",),
    "starlette": ("marin/plugins/serve/",),
    "uvicorn": ("marin/plugins/serve/", "marin/plugins/mlflow/"),
    # The door opens every tokenizer; borrowed makes one of what others have, the step trains one. Nobody else asks the library:
    # its settings of a call, its chance and its panics would come in with it.
    "tokenizers": ("marin/data/tokenizer.py", "marin/data/borrowed/", "marin/pipeline/tokenizer.py"),
}

# msgspec and orjson: JSON at the speed of C, held equal to RFC 8785 by tests/ledger/format/test_canonical.py
LEDGER_MAY_IMPORT = {
    "cryptography",
    "filelock",
    "ml_dtypes",
    "msgspec",
    "numpy",
    "obstore",
    "orjson",
    "pyfastcdc",
    "rfc3161_client",
    "rfc8785",
    "zstandard",
}

HEAVY = {
    "datasets",
    "dvc",
    "equinox",
    "haliax",
    "hydra",
    "jax",
    "jaxlib",
    "levanter",
    "lm_eval",
    "matplotlib",
    "mlflow",
    "numpy",
    "obstore",
    "pandas",
    "ray",
    "rich",
    "tensorstore",
    "tokenizers",
    "torch",
    "transformers",
    "wandb",
}

FORBIDDEN_MODULES = {"cloudpickle", "dill", "marshal", "pickle", "shelve"}
FORBIDDEN_CALLS = {"eval", "exec", "compile", "__import__"}
FORBIDDEN_NAMES = {"utils", "util", "helpers", "helper", "manager", "common", "misc"}
LONGEST = 740


@dataclass(frozen=True)
class Import:
    """One import of one module: where it stands and whether it runs when the file is loaded."""

    file: str
    line: int
    module: str
    names: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.file}:{self.line} imports {self.module}"


def imports_of(source: str, file: str) -> Iterator[Import]:
    package = file.removesuffix("/__init__.py").removesuffix(".py").split("/")
    for node in nodes(source):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(file, node.lineno, alias.name, ())
        elif isinstance(node, ast.ImportFrom):
            names = tuple(alias.name for alias in node.names)
            if node.level:
                depth = node.level - (1 if file.endswith("/__init__.py") else 0)
                base = package[: len(package) - depth] if depth else package
                yield Import(file, node.lineno, ".".join([*base, *filter(None, [node.module])]), names)
            else:
                yield Import(file, node.lineno, node.module or "", names)


@cache
def all_imports() -> list[Import]:
    return [
        item for file in FILES for item in imports_of(file.read_text("utf-8"), file.relative_to(PROJECT).as_posix())
    ]


def breaches_of_direction(imports: list[Import]) -> list[str]:
    found = []
    for item in imports:
        here, there = item.file.split("/")[0], item.module.split(".")[0]
        if there in DIRECTIONS and there not in DIRECTIONS[here]:
            found.append(str(item))
        if here == "marin" and there == "ledger" and item.module != "ledger":
            found.append(f"{item} instead of its door")
    return found


def breaches_of_confinement(imports: list[Import]) -> list[str]:
    return [
        str(item)
        for item in imports
        if (allowed := CONFINED.get(item.module.split(".")[0])) is not None and not item.file.startswith(allowed)
    ]


def test_experiments_use_marin_and_marin_uses_the_ledger_through_its_door() -> None:
    assert breaches_of_direction(all_imports()) == []


LEDGER_FLOORS = (
    "reference",
    "testing",
    "mirror",
    "witness",
    "service",
    "audit",
    "tensors",
    "log",
    "authors",
    "store",
    "storage",
    "format",
    "errors",
)
"""The rooms of ledger from the top down."""

FLOORS = (
    "plugins",
    "cli",
    "library",
    "reporting",
    "export",
    "verify",
    "graph",
    "pipeline",
    "runners",
    "evaluation",
    "training",
    "execution",
    "loops",
    "preregistration",
    "work",
    "history",
    "data",
    "record",
    "kinds",
    "process",
    "recipe",
    "provenance",
    "tensors",
    "errors",
)
"""The rooms of marin from the top down: each enters only what stands below it, wherever in a file the import is."""

ON_DEMAND = {
    "marin/evaluation/importing.py": "jax, where a model is imported",
    "marin/kinds/known.py": "what finds plugins, for a type that the core does not have",
    "marin/graph/execution/stage.py": "jax begins under the arithmetic contract, once for all steps of a sweep",
    "marin/library/model.py": "jax begins under the arithmetic contract",
    "marin/library/run.py": "jax, where a model, a batch or a verification needs it",
    "marin/process/waiting.py": "the ledger, which a command that is loaded may not have loaded",
    "marin/pipeline/evaluate.py": "jax begins under the arithmetic contract, which apply() puts in force first",
    "marin/pipeline/export.py": "jax begins under the arithmetic contract",
    "marin/pipeline/tokens.py": "TensorStore, where the step is executed",
    "marin/pipeline/train.py": "jax begins under the arithmetic contract; Ray, where it trains",
    "marin/record/outputs.py": "TensorStore, for outputs that are tensors",
    "marin/record/writer.py": "what finds plugins, where an append service runs",
    "marin/reporting/pages.py": "each page's own libraries",
    "marin/reporting/verification/page.py": "matplotlib, where a link's picture is drawn",
    "marin/training/inspection/answers.py": "jax, among stand-ins for what an answer does not use",
    "marin/training/inspection/batch.py": "jax begins under the arithmetic contract",
    "marin/verify/judges/data.py": "TensorStore, where tokens are made again",
    "marin/verify/judges/model.py": "jax begins under the arithmetic contract",
    "marin/verify/judges/workers.py": "jax begins under the arithmetic contract",
    "marin/verify/judges/training.py": "jax begins under the arithmetic contract",
}
"""Files outside of the command line that import a room inside a function, and why. None does for a circle."""


TYPED = ("TYPE_CHECKING", "typing.TYPE_CHECKING")


@dataclass(frozen=True)
class Entering:
    """One file enters another: modules by their dotted names, ``inside`` a function or not; ``typed``: for anyone who checks
    types alone, and never when the file is executed."""

    source: str
    target: str
    inside: bool
    typed: bool = False

    def floors(self) -> tuple[str, str]:
        return self.source.split(".")[1], self.target.split(".")[1]


def enterings_of(source: str, module: str, modules: set[str]) -> Iterator[Entering]:
    """What the file of ``module`` imports of ``modules``, by absolute names as all files here do."""

    def walk(node: ast.AST, inside: bool, typed: bool) -> Iterator[Entering]:
        branch = node.body if isinstance(node, ast.If) and dotted(node.test) in TYPED else []
        for child in ast.iter_child_nodes(node):
            unread = typed or child in branch
            named: list[str] = []
            if isinstance(child, ast.Import):
                named = [alias.name for alias in child.names]
            elif isinstance(child, ast.ImportFrom) and child.module and not child.level:
                whole = [f"{child.module}.{alias.name}" for alias in child.names]
                named = [name if name in modules else child.module for name in whole]
            yield from (Entering(module, name, inside, unread) for name in named if name in modules)
            within = inside or isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            yield from walk(child, within, unread)

    yield from walk(parsed(source), False, False)


def module_of(file: str) -> str:
    return file.removesuffix("/__init__.py").removesuffix(".py").replace("/", ".")


@cache
def enterings(package: str) -> list[Entering]:
    """What the files of a package import of each other; its door, which hands all names on, stands above them all."""
    sources = {
        module_of(file.relative_to(PROJECT).as_posix()): file.read_text("utf-8")
        for file in FILES
        if file.is_relative_to(PROJECT / package)
    }
    modules = set(sources) - {package}
    return [found for module in modules for found in enterings_of(sources[module], module, modules)]


def climbing(found: list[Entering], floors: tuple[str, ...] = FLOORS) -> list[str]:
    """Imports of a room that stands above, or beside, the one that imports it."""
    height = {room: number for number, room in enumerate(reversed(floors))}
    return sorted(
        f"{entering.source} enters {entering.target}"
        for entering in found
        for here, there in [entering.floors()]
        if here != there and height[here] <= height[there]
    )


def circles(found: list[Entering]) -> list[str]:
    """Modules that import each other, over however many others."""
    reached: dict[str, set[str]] = {}
    for entering in found:
        reached.setdefault(entering.source, set()).add(entering.target)
    order = TopologicalSorter({source: targets - {source} for source, targets in reached.items()})
    try:
        order.prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def between_siblings(found: list[Entering]) -> set[tuple[str, str]]:
    """Packages and modules of one package of which the first enters the second."""
    between = set()
    for entering in found:
        here, there = entering.source.split("."), entering.target.split(".")
        apart = next((i for i, (a, b) in enumerate(zip(here, there, strict=False)) if a != b), None)
        if apart is not None and not entering.typed:
            between.add((".".join(here[: apart + 1]), ".".join(there[: apart + 1])))
    return between


def packages_in_circles(found: list[Entering]) -> list[str]:
    """Packages, and modules beside them, that enter a sibling from which, over however many others, a way leads back to them."""
    between = between_siblings(found)

    def reached(package: str) -> set[str]:
        seen: set[str] = set()
        ahead = {package}
        while ahead:
            ahead = {there for here, there in between if here in ahead} - seen
            seen |= ahead
        return seen

    return sorted(f"{here} enters {there}" for here, there in between if here in reached(there))


def test_every_room_has_its_floor_and_nothing_lies_loose() -> None:
    rooms = {path.stem for path in (PROJECT / "marin").iterdir() if path.name[0] != "_" and path.name != "py.typed"}
    assert rooms == set(FLOORS)
    loose = {path.name for path in (PROJECT / "ledger").glob("*.py")}
    assert loose == {"__init__.py", "errors.py", "reference.py", "testing.py"}


MOST_FILES = 14
"""What a reader can hold."""


def crowded(folder: Path) -> Iterator[str]:
    """Folders below, and the folder itself, with more than ``MOST_FILES`` files of ours."""
    files = [path for path in folder.iterdir() if path.is_file() and path.name != "__init__.py"]
    if len(files) > MOST_FILES:
        yield folder.relative_to(PROJECT).as_posix()
    for inner in folder.iterdir():
        if inner.is_dir() and inner.name not in ("__pycache__", "golden"):  # golden: what was released stays as it is
            yield from crowded(inner)


def test_a_folder_is_seen_at_a_glance() -> None:
    rooms = ("ledger", "marin", "experiments/benchmarks", "bench", "tests", "conf")  # experiments: a numbered series
    found = [folder for room in rooms for folder in crowded(PROJECT / room)]
    lists = ["tests/e2e/pages/pictures", "conf/model"]
    assert found == lists, "pictures of what people see, and a list of sizes, whose names people type"


def test_no_room_enters_one_above_it() -> None:
    assert climbing(enterings("marin")) == []
    assert climbing(enterings("ledger"), LEDGER_FLOORS) == []
    rooms = {path.name.removesuffix(".py") for path in (PROJECT / "ledger").iterdir() if path.suffix in ("", ".py")}
    assert rooms - {"__init__", "__pycache__"} == set(LEDGER_FLOORS)


@pytest.mark.parametrize("package", ["ledger", "marin"])
def test_no_modules_import_each_other(package: str) -> None:
    assert circles(enterings(package)) == []


@pytest.mark.parametrize("package", sorted(PACKAGES))
def test_no_packages_import_each_other(package: str) -> None:
    assert packages_in_circles(enterings(package)) == []


def test_imports_inside_of_functions_are_known_and_needed() -> None:
    inside = {
        f"{entering.source.replace('.', '/')}.py"
        for entering in enterings("marin")
        if entering.inside and entering.floors()[0] not in ("cli", "plugins")
    }
    assert inside == set(ON_DEMAND)


def test_a_climb_and_a_circle_would_be_found() -> None:
    modules = {"marin.record.root", "marin.history.runs", "marin.history.catalog"}
    up = list(enterings_of("def f():\n    from marin.history import runs\n", "marin.record.root", modules))
    assert up == [Entering("marin.record.root", "marin.history.runs", inside=True)]
    assert climbing(up) == ["marin.record.root enters marin.history.runs"]
    down = list(enterings_of("from marin.record.root import Root", "marin.history.runs", modules))
    assert climbing(down) == []
    assert circles(down) == []
    assert set(circles(up + down)) == {"marin.record.root", "marin.history.runs"}


def test_a_circle_of_packages_would_be_found() -> None:
    modules = {"marin.a.b.one", "marin.a.b.two", "marin.a.c.three", "marin.a.d.four", "marin.a.five"}
    into_c = list(enterings_of("from marin.a.c import three", "marin.a.b.one", modules))
    into_d = list(enterings_of("def f():\n    import marin.a.d.four\n", "marin.a.c.three", modules))
    back = "from marin.a.b.two import X"
    around = into_c + into_d + list(enterings_of(back, "marin.a.d.four", modules))
    assert packages_in_circles(into_c + into_d) == []
    assert circles(around) == []  # no module is in one
    assert packages_in_circles(around) == [
        "marin.a.b enters marin.a.c",
        "marin.a.c enters marin.a.d",
        "marin.a.d enters marin.a.b",
    ]
    checked = list(
        enterings_of(f"if TYPE_CHECKING:\n    {back}\nelse:\n    import marin.a.five\n", "marin.a.d.four", modules)
    )
    assert [entering.typed for entering in checked] == [True, False]
    assert packages_in_circles(into_c + into_d + checked) == []
    besides = list(enterings_of(back, "marin.a.five", modules)) + list(
        enterings_of("import marin.a.five", "marin.a.b.one", modules)
    )
    assert packages_in_circles(besides) == ["marin.a.b enters marin.a.five", "marin.a.five enters marin.a.b"]


def arrows(picture: str) -> Iterator[tuple[str, str]]:
    """The rooms between which a picture of Mermaid's draws an arrow: ``a & b --> c --> d`` draws three."""
    for line in picture.splitlines():
        ends = [[room.strip() for room in part.split("&")] for part in line.split("-->")]
        for here, there in pairwise(ends):
            yield from product(here, there)


def entered() -> set[tuple[str, str]]:
    """Rooms of which the first imports the second; those of the ledger by the names that its door hands out."""
    within = {found.floors() for package in ("marin", "ledger") for found in enterings(package) if not found.typed}
    homes = {name: home.split(".")[1] for name, home in ledger.homes().items()}
    through = {
        (item.file.split("/")[1].removesuffix(".py"), homes[name])
        for item in all_imports()
        if item.module == "ledger" and item.file.startswith("marin/")
        for name in item.names
        if name in homes
    }
    return within | through


def test_the_picture_draws_an_arrow_only_for_an_import() -> None:
    page = (PROJECT / "docs" / "architecture.md").read_text("utf-8")
    picture = re.search(r"```mermaid\n(.*?)```", page, re.DOTALL)
    assert picture is not None
    drawn = set(arrows(picture[1]))
    assert {*FLOORS} & {*LEDGER_FLOORS} & {room for arrow in drawn for room in arrow} == set(), "two rooms of a name"
    missing = drawn - entered()
    assert {arrow for arrow in missing if arrow[0] != "plugins" or not gauges.absent()} == set()
    assert ("record", "store") in drawn


def test_an_arrow_without_an_import_would_be_found() -> None:
    drawn = set(arrows("flowchart TB\n    verify --> unlearning & graph --> pipeline\n"))
    assert len(drawn) == 4
    assert drawn - entered() == {("verify", "unlearning"), ("unlearning", "pipeline")}


def test_heavy_libraries_are_imported_in_one_place_each() -> None:
    assert breaches_of_confinement(all_imports()) == []


@pytest.mark.skipif("exact" in gauges.absent(), reason="without the plugin exact")
def test_the_reference_of_exact_arithmetic_knows_no_compiler() -> None:
    names = ("tracing", "reading", "guarded", "integers", "causal", "compiled", "known", "stacks", "step", "plugin")
    found = {
        item.file
        for item in all_imports()
        if item.file.startswith("marin/plugins/exact/") and item.module.split(".")[0] == "jax"
    }
    assert found == {f"marin/plugins/exact/{name}.py" for name in names}


def test_the_ledger_needs_little() -> None:
    foreign = {
        f"{item}"
        for item in all_imports()
        if item.file.startswith("ledger/")
        and (top := item.module.split(".")[0]) not in sys.stdlib_module_names
        and top not in LEDGER_MAY_IMPORT | {"ledger"}
    }
    assert foreign == set()


def test_a_breach_would_be_found() -> None:
    lines = ("import jax.numpy", "from ledger.format.tlog import root", "def f():", "    import marin.cli")
    source = "\n".join([*lines, "from ...pipeline import corpus", ""])
    inside = list(imports_of(source, "marin/verify/segments/compare.py"))
    assert [item.module for item in inside] == ["jax.numpy", "ledger.format.tlog", "marin.pipeline", "marin.cli"]
    assert breaches_of_confinement(inside) == ["marin/verify/segments/compare.py:1 imports jax.numpy"]
    asked = list(imports_of("def f():\n    from tokenizers.models import BPE", "marin/plugins/serve/answers.py"))
    assert breaches_of_confinement(asked) == ["marin/plugins/serve/answers.py:2 imports tokenizers.models"]
    assert breaches_of_direction(inside) == [
        "marin/verify/segments/compare.py:2 imports ledger.format.tlog instead of its door"
    ]
    assert breaches_of_direction(list(imports_of("from marin import recipe", "ledger/log/writer.py"))) == [
        "ledger/log/writer.py:1 imports marin"
    ]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.relative_to(PROJECT).as_posix())
def test_a_file_is_one_room(file: Path) -> None:
    source = file.read_text("utf-8")
    tree = parsed(source)
    assert source.count("\n") <= LONGEST, f"split it: a file has at most {LONGEST} lines"
    assert ast.get_docstring(tree) or not source.strip(), "a file opens with what it is for"
    assert file.stem not in FORBIDDEN_NAMES, "name it after what it does"
    for node in nodes(source):
        if isinstance(node, ast.Import | ast.ImportFrom):
            named = (
                {alias.name.split(".")[0] for alias in node.names}
                if isinstance(node, ast.Import)
                else {(node.module or "").split(".")[0]}
            )
            assert not named & FORBIDDEN_MODULES, f"line {node.lineno}: nothing is unpickled here"
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            assert node.func.id not in FORBIDDEN_CALLS, f"line {node.lineno}: data is never executed"


def loaded_after(statement: str) -> set[str]:
    """Names of the modules in a fresh process that executed `statement`."""
    program = f"{statement}\nimport sys\nsys.stderr.write(' '.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], cwd=PROJECT, capture_output=True, text=True, check=True)
    return set(done.stderr.split())


def test_the_door_of_the_ledger_is_light() -> None:
    loaded = loaded_after("import ledger")
    assert "ledger" in loaded
    assert loaded & (HEAVY | {"marin", "click"}) == set()


def test_the_help_of_the_command_line_is_light() -> None:
    loaded = loaded_after("from marin.cli.main import run\nassert run(['--help']) == 0")
    assert "click" in loaded
    assert loaded & (HEAVY | {"cryptography", "msgspec", "yaml"}) == set()


def test_who_reads_the_log_waits_for_no_client_and_no_store() -> None:
    """`marin log` and `marin ls` do: what fetches, stamps or keeps bytes is for who does."""
    loaded = loaded_after("import marin.record.root, marin.history.catalog, marin.history.runs")
    assert "cryptography" in loaded
    assert loaded & (HEAVY | {"ssl", "urllib3", "email", "httpx", "ledger.store.store"}) == set()


def test_who_judges_a_log_without_time_stamps_waits_for_no_certificates() -> None:
    loaded = loaded_after("import marin.verify.verification, marin.record.trust.evidence as it\nit.sources()")
    assert "ledger.audit.fsck" in loaded
    assert loaded & (HEAVY - {"numpy"} | {"cryptography.x509", "http.client", "rfc3161_client"}) == set()


def test_who_appends_waits_for_nothing_that_judges_or_stamps() -> None:
    """`marin ledger append` does; its neighbours are imported when they are called."""
    loaded = loaded_after("from marin.cli.main import run\nassert run(['ledger', 'append', '--help']) == 0")
    assert "marin.cli.ledger.append" in loaded
    unused = {"ssl", "cryptography.x509", "http.client", "marin.history", "marin.recipe", "marin.record.audit"}
    assert loaded & (HEAVY | unused) == set()


def test_what_puts_the_contract_in_force_was_imported_without_jax() -> None:
    """Else `marin show --data` and Run.batch would be refused in a fresh process: jax reads the settings when it is imported."""
    files = {
        item.file
        for item in all_imports()
        if item.module == "marin.process.arithmetic" and re.search(r"(?m)^ *apply\(", (PROJECT / item.file).read_text())
    }
    assert "marin/training/inspection/batch.py" in files and len(files) > 10
    assert "jax" not in loaded_after("\n".join(f"import {module_of(file)}" for file in sorted(files)))


PRINTS = {
    "marin/cli/output.py": "the room that prints",
    "marin/process/logs.py": "logging",
    "marin/cli/main.py": "flush, and silence when the reader left",
    "marin/cli/reference.py": "docs/commands.md, our own words",
    "ledger/reference.py": "ledger/REFERENCE.md, our own words",
    "marin/cli/looking/log.py": "flush and the question whether it is a terminal",
    "marin/cli/ledger/service.py": "flush",
    "marin/cli/ledger/mirror.py": "flush",
    "marin/cli/ledger/witness.py": "flush",
    "marin/graph/execution/progress.py": "a bar whose notes are visible",
    "marin/process/progress.py": "a bar whose notes are visible",
    "marin/process/interpreter.py": "flush",
    "marin/process/waiting.py": "counts seconds on a terminal",
    "marin/runners/process.py": "hands its own stderr to a child",
    "marin/plugins/ray/cluster.py": "sends Ray's words to stderr",
    "marin/verify/sealed.py": "passes on what the confined process's own room printed",
    "marin/verify/commit.py": "sends an installer's words to stderr",
    "marin/plugins/exact/known.py": "answers its parent in JSON",
    "marin/training/inspection/answers.py": "answers its parent in JSON",
    "ledger/store/workers/fileworker.py": "answers its parent in lines of its own format",
}
"""Files that name a standard stream, and why: what others wrote leaves through the first two alone."""


def dotted(node: ast.AST) -> str:
    """``a.b.c`` for names and their attributes; nothing for what is computed."""
    if isinstance(node, ast.Name):
        return node.id
    inner = dotted(node.value) if isinstance(node, ast.Attribute) else ""
    return f"{inner}.{node.attr}" if isinstance(node, ast.Attribute) and inner else ""


def breaches_of_printing(source: str, file: str) -> list[str]:
    """Places that could write text to a terminal without making it visible."""
    found = []
    for node in nodes(source):
        if not isinstance(node, ast.Attribute | ast.Call):
            continue
        stream = dotted(node) in ("sys.stdout", "sys.stderr", "sys.__stdout__", "sys.__stderr__")
        call = dotted(node.func) if isinstance(node, ast.Call) else ""
        printing = call in ("print", "click.echo", "click.secho", "click.confirm", "click.echo_via_pager", "Console")
        logs = call in ("logging.basicConfig", "logging.StreamHandler", "traceback.print_exc", "warnings.showwarning")
        if (stream and file not in PRINTS) or (
            (printing or logs)
            and file not in ("marin/cli/output.py", "marin/process/logs.py")
            and not (call == "Console" and file.endswith("/progress.py"))
        ):
            found.append(f"{file}:{node.lineno} {ast.unparse(node)[:60]}")
    return found


def test_foreign_text_leaves_through_one_room() -> None:
    found = [
        line
        for file in FILES
        for line in breaches_of_printing(file.read_text(), file.relative_to(PROJECT).as_posix())
        if not line.startswith("experiments/")
    ]
    assert found == []


def test_a_raw_print_would_be_found() -> None:
    source = "import click, sys\nclick.echo(commit)\nprint(name)\nsys.stdout.write(text)\n"
    assert [line.split()[0] for line in breaches_of_printing(source, "marin/cli/looking/ls.py")] == [
        "marin/cli/looking/ls.py:2",
        "marin/cli/looking/ls.py:3",
        "marin/cli/looking/ls.py:4",
    ]


STATE = {
    "marin/plugins/mlflow/server/addresses.py _request": "an address is told once on its way out: threads of MLflow's server",
    "marin/plugins/mlflow/stores/tracking.py _InOrder": "MLflow's queue begins its threads when it is first used",
    "marin/data/reach.py _reach": "how far the data of a block may reach, gone with it",
    "marin/training/runtime/stopping.py _requested": "whether this process was asked to stop, from whatever thread",
    "marin/graph/execution/guard.py _installed": "an audit hook is for ever",
    "marin/process/text.py _last_output": "when this process last said something",
    "marin/process/waiting.py _innermost": "which wait of this process speaks",
    "marin/process/confinement.py _held": "a process that shut itself in cannot come out",
    "marin/record/root.py _appender": "how a confined process hands events to its parent",
    "marin/plugins/ray/cluster.py _shared": "the Ray of a block, gone with it",
    "marin/plugins/mlflow/stores/recorder.py _making": "a lock around the cache below",
    "marin/plugins/mlflow/stores/recorder.py _projections": "a cache that can be made again",
    "marin/training/initial.py _newest": "a cache of traced programs",
    "marin/training/state.py _shapes": "a cache of what was traced",
    "marin/verify/jax/replay.py _prepared": "a cache of compiled programs",
    "marin/verify/jax/replay.py _programs": "a cache of compiled programs",
    "ledger/witness/server.py _Handler": "what http.server keeps where",
    "ledger/witness/server.py _Server": "what http.server keeps where",
}
"""The only state that does not begin in a constructor, and why."""
CONTAINERS = {
    "dict",
    "list",
    "set",
    "deque",
    "defaultdict",
    "Counter",
    "Lock",
    "RLock",
    "WeakKeyDictionary",
    "Event",
    "local",
    "ContextVar",
}


def loose_state(source: str) -> Iterator[str]:
    """Names of a module that hold something mutable, those that `global` changes, and classes with an attribute that
    neither the class nor its constructor has."""
    for node in parsed(source).body:
        target = (
            node.target
            if isinstance(node, ast.AnnAssign)
            else node.targets[0]
            if isinstance(node, ast.Assign)
            else None
        )
        if isinstance(target, ast.Name) and not target.id.strip("_").isupper() and target.id != "__all__":
            value = getattr(node, "value", None)
            made = ast.unparse(value.func).rpartition(".")[2] if isinstance(value, ast.Call) else ""
            if made in CONTAINERS or isinstance(value, ast.Dict | ast.List | ast.Set):
                yield target.id
    for node in nodes(source):
        if isinstance(node, ast.Global):
            yield from node.names
        if isinstance(node, ast.ClassDef) and set(late(node)):
            yield node.name


def late(kind: ast.ClassDef) -> Iterator[str]:
    """Attributes of ``self`` that are there only once some method was called."""
    begun = {
        node.target.id for node in kind.body if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }
    elsewhere: set[str] = set()
    for method in kind.body:
        if not isinstance(method, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        into = begun if method.name in ("__init__", "__post_init__") else elsewhere
        for node in ast.walk(method):
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and dotted(node.value) == "self":
                into.add(node.attr)
    yield from elsewhere - begun


def test_state_begins_in_a_constructor() -> None:
    found = [
        f"{file.relative_to(PROJECT).as_posix()} {name}"
        for file in FILES
        if file.relative_to(PROJECT).parts[0] != "experiments"
        for name in loose_state(file.read_text())
    ]
    assert [name for name in found if name not in STATE] == []


def test_loose_state_would_be_found() -> None:
    source = "cache = {}\nLIMITS = {}\nclass A:\n  b: int\n  def run(self):\n    self.a = 1\n    self.b = 2\n"
    assert list(loose_state(source)) == ["cache", "A"]
    assert list(loose_state("import weakref\nseen = weakref.WeakKeyDictionary()\ndef f():\n  global n\n  n = 1\n")) == [
        "seen",
        "n",
    ]
