"""What an experiment file holds by this lab's convention: a new one by :func:`new`, what one lacks by :func:`check`.

The docstring has a paragraph for each of :data:`FIELDS`; the file states its registration, takes no arguments, and its
graph trains every registered arm with every seed. Marin's own guidelines ask for the same in an issue; a file can be
checked, and stands in the history beside the results.
"""

from __future__ import annotations

import ast
import re
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from marin.errors import UsageError
from marin.graph.files import STEPS, load_experiment, load_graph
from marin.graph.graph import Graph
from marin.plugins.lab.conventions.purity import differences
from marin.preregistration.arms import arm_digest
from marin.preregistration.registration import Registration, checked
from marin.process.files import write_whole
from marin.recipe.schema import Recipe

FIELDS = ("Question", "Hypothesis", "Regime", "Metrics", "Definition of done", "Issue")
TO_DO = "TODO"
ARGUMENTS = {"argparse", "optparse", "getopt", "click", "fire", "typer", "absl", "hydra", "dotenv"}
READS = {"sys.argv", "os.environ", "os.getenv", "os.environb", "input"}
NO_ARGUMENTS = "an experiment takes no arguments: write the values into the file"
_NUMBERED = re.compile(r"exp(\d{3,})_")
_URL = re.compile(r"https?://[^\s/\"\\<>]+/[^\s\"\\<>]+\Z")
_TITLE = re.compile(r'[^"\\\x00-\x1f\x7f-\x9f{}]{3,100}\Z')


@dataclass(frozen=True)
class Lack:
    """What a file lacks: ``line`` of the file (0: none), ``what`` in a sentence, ``cure``."""

    line: int
    what: str
    cure: str


def new(folder: Path, issue: str, title: str) -> Path:
    """Write a new experiment file, numbered after the last one of ``folder``; it runs as it is, and its TODOs are what
    :func:`check` asks for.

    Raises:
        UsageError: ``issue`` is not a URL, or ``title`` cannot stand in the file.
    """
    if not _URL.match(issue):
        raise UsageError(
            "not the address of an issue",
            where="ISSUE-URL",
            expected="an http(s) address of the issue that asks the question",
            found=repr(issue[:200]),
            cure="open one (the form is in .github/ISSUE_TEMPLATE/experiment.yml) and give its address",
        )
    if not _TITLE.match(title):
        raise UsageError(
            "not a title",
            where="TITLE",
            expected="3 to 100 characters on one line, without quotes, backslashes and braces",
            found=repr(title[:200]),
            cure="shorten or rephrase it",
        )
    numbers = [int(match[1]) for file in folder.glob("exp*.py") if (match := _NUMBERED.match(file.name))]
    slug = "_".join(re.findall(r"[a-z0-9]+", title.lower()))[:40].strip("_") or "experiment"
    name = f"exp{max(numbers, default=0) + 1:03}_{slug}"
    environment = Environment(  # noqa: S701 - Python, not HTML
        loader=FileSystemLoader(Path(__file__).with_name("templates")),
        undefined=StrictUndefined,
        keep_trailing_newline=True,
    )
    text = environment.get_template("experiment.py.j2").render(title=title, issue=issue, name=name, arms=2, seeds=3)
    file = folder / f"{name}.py"
    write_whole(file, text.encode())
    return file


def check(file: Path) -> list[Lack]:
    """What ``file`` lacks, in the order of its lines. The file is loaded: it is the user's own code.

    Raises:
        UsageError: it is not Python, or stops while it is loaded.
    """
    module = load_experiment(file)
    tree = ast.parse(file.read_bytes())
    stated = getattr(module, "experiment", None)
    found = [*_docstring(tree, file), *_unwritten(tree, file, stated), *_arguments(tree)]
    if not isinstance(stated, Registration):
        cure = "state experiment = Registration(...) at its top level (docs/statistics.md)"
        return sorted([*found, Lack(0, "it states no registration", cure)], key=lambda lack: lack.line)
    line = _line_of(tree, "experiment")
    found += _registration(checked(stated, where=f"{file}: experiment"), load_graph(file), file.stem, line)
    return sorted(found, key=lambda lack: lack.line)


def check_elsewhere(file: Path) -> list[Lack]:
    """What of ``file`` is not the same in a process with other arguments, environment, folder and input: whatever way it
    asks for them. The file is loaded, in two processes of its own.

    Raises:
        UsageError: it ends such a process, or never lets it go on.
    """
    differing = differences(file)
    if not differing:
        return []
    first = differing[0] + (f" and {len(differing) - 1} more" if differing[1:] else "")
    return [Lack(0, f"it takes arguments: loaded with others, not the same is {first}", NO_ARGUMENTS)]


def check_registration(file: Path) -> list[Lack]:
    """What ``file`` lacks for its registration to be appended to a log, which forgets nothing: of a file with steps all
    that :func:`check` asks, of one without (its arms are trained by other commands) that it is written, and takes no arguments.

    Raises:
        UsageError: see :func:`check`.
    """
    module = load_experiment(file)
    if hasattr(module, STEPS):
        return check(file)
    tree = ast.parse(file.read_bytes())
    found = [*_unwritten(tree, file, getattr(module, "experiment", None)), *_arguments(tree)]
    if TO_DO in (ast.get_docstring(tree) or ""):
        found.append(Lack(1, f"its docstring is not written yet: {TO_DO}", "write it"))
    return sorted(found, key=lambda lack: lack.line)


def fields(docstring: str) -> dict[str, str]:
    """The paragraphs of a docstring that begin with the name of a field and a full stop."""
    named = "|".join(FIELDS)
    return {
        match[1]: " ".join(match[2].split())
        for paragraph in re.split(r"\n\s*\n", docstring)
        if (match := re.match(rf"\s*({named})\.(?:\s+(.*))?\Z", paragraph, re.DOTALL)) and match[2]
    }


def _docstring(tree: ast.Module, file: Path) -> Iterator[Lack]:
    text = ast.get_docstring(tree)
    if text is None:
        yield Lack(1, "it has no docstring", f"open it with {', '.join(FIELDS)}, a paragraph each")
        return
    said = fields(text)
    for field in FIELDS:
        if field not in said:
            yield Lack(1, f"its docstring does not say: {field}", f'write a paragraph "{field}. ..."')
        elif TO_DO in said[field]:
            yield Lack(1, f"{field} is not written yet: {TO_DO}", "write it")
    if (question := said.get("Question", "?")) and TO_DO not in question and "?" not in question:
        yield Lack(1, "Question asks nothing", "end a sentence of it with a question mark")
    issue = said.get("Issue", "").rstrip(".")
    if issue and not _URL.match(issue) and not _is_page(file, issue):
        yield Lack(1, f"Issue leads nowhere: {issue[:80]}", "give the issue's address, or a page of this repository")


def _is_page(file: Path, issue: str) -> bool:
    root = file.resolve().parent.parent
    page = (root / issue).resolve()
    return page.is_file() and page.is_relative_to(root)


def _arguments(tree: ast.Module) -> Iterator[Lack]:
    """Whatever makes what the file says depend on how it is called."""
    known: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            known |= {alias.asname: name for alias, name in _imported(node) if alias.asname}
    for node in ast.walk(tree):
        found, line = "", getattr(node, "lineno", 0)
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [name for _, name in _imported(node)]
            odd = (name for name in names if name.partition(".")[0] in ARGUMENTS or name in (*READS, "os.*", "sys.*"))
            found = next((f"imports {name}" for name in odd), "")
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            name = f"{known.get(node.value.id, node.value.id)}.{node.attr}"
            found = name if name in READS else ""
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in READS:
            found = f"{node.func.id}()"
        if found:
            yield Lack(line, f"it takes arguments: {found}", NO_ARGUMENTS)


def _imported(node: ast.Import | ast.ImportFrom) -> list[tuple[ast.alias, str]]:
    """Each name of an import, with the whole name of what it brings."""
    module = f"{node.module or ''}." if isinstance(node, ast.ImportFrom) else ""
    return [(alias, f"{module}{alias.name}") for alias in node.names]


def _registration(stated: Registration, graph: Graph, stem: str, line: int) -> Iterator[Lack]:
    if stated.name != stem:
        yield Lack(line, f"it registers {stated.name}, and is {stem}", f'write name="{stem}"')
    if len(stated.arms) < 2 and stated.track is None:
        yield Lack(line, "one arm is compared with nothing", "register the baseline as an arm")
    step, _, _ = stated.primary.name.partition(".")
    there = {
        (arm_digest(node.step.config), node.step.config.seed)
        for node in graph.nodes.values()
        if isinstance(node.step.config, Recipe)
        and node.step.definition is not None
        and node.step.definition.name == step
    }
    for arm, recipe in stated.arms.items():
        missing = [seed for seed in stated.seeds if (arm_digest(recipe), seed) not in there]
        if missing:
            seeds = ", ".join(map(str, missing))
            yield Lack(
                line,
                f"no step gives {stated.primary.name} of arm {arm} with seed {seeds}",
                "list the step that does among what `steps` depend on",
            )


def _unwritten(tree: ast.Module, file: Path, stated: object) -> Iterator[Lack]:
    """Lines below the docstring that are left to write, whatever they belong to; and what is registered, if it is left so
    in another file."""
    below = tree.body[0].end_lineno or 0 if ast.get_docstring(tree) is not None else 0
    with tokenize.open(file) as lines:
        left = [
            (number, line.strip()) for number, line in enumerate(lines, start=1) if number > below and TO_DO in line
        ]
    for number, line in left:
        yield Lack(number, f"not written yet: {line[:80]}", "write it")
    if isinstance(stated, Registration) and not left and TO_DO in stated.question + stated.hypothesis:
        yield Lack(_line_of(tree, "experiment"), f"the registration is not written yet: {TO_DO}", "write it")


def _line_of(tree: ast.Module, name: str) -> int:
    for node in tree.body:
        if isinstance(node, ast.Assign) and any(isinstance(to, ast.Name) and to.id == name for to in node.targets):
            return node.lineno
    return 0
