"""What an experiment file must hold: a new one runs and says what is left to write; each lack is found at its line."""

from __future__ import annotations

import io
import json
import re
import shutil
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from marin.errors import UsageError
from marin.graph.experiment.sanity import sanity
from marin.graph.files import load_graph
from marin.plugins.lab.commands.experiment import experiment as command
from marin.plugins.lab.conventions.conventions import FIELDS, check, check_elsewhere, fields, new

PROJECT = Path(__file__).resolve().parents[3]
ISSUE = "https://git.example/lab/marin/issues/12"
WHOLE = PROJECT / "experiments" / "exp001_grammar_scaling.py"
SMALL = '''"""Does loss fall with size?

Question. Does a wider Llama reach a lower validation loss?

Hypothesis. Yes: with every seed.

Regime. Two widths, three seeds each.

Metrics. Held-out loss, lower is better.

Definition of done. All six are evaluated on the same text.

Issue. docs/experiments.md
"""

from experiments.defaults import default_corpus, default_eval, default_tokenize, default_train
from marin.preregistration.registration import CostCap, Metric, Registration
from marin.recipe.schema import Evaluation, GrammarDataset, Model, Optimizer, Trainer

SEEDS = (1, 2, 3)
SIZES = {"narrow": Model(hidden_dim=32), "wide": Model(hidden_dim=64)}

tokens = default_tokenize("words", default_corpus("words", GrammarDataset()), vocab_size=512)
evaluations = {
    (size, seed): default_eval(
        default_train(f"{size}-{seed}", tokens, model=model, seed=seed, trainer=Trainer(), optimizer=Optimizer()),
        Evaluation(),
    )
    for size, model in SIZES.items()
    for seed in SEEDS
}
experiment = Registration(
    name="exp001_grammar_scaling",
    question="Does a wider Llama reach a lower validation loss?",
    hypothesis="With every seed.",
    primary=Metric(name="evaluate.loss", direction="lower"),
    arms={size: evaluations[size, 1].config for size in SIZES},
    baseline="narrow",
    seeds=SEEDS,
    test="welch",
    cost_cap=CostCap(seconds=3600.0),
)
steps = list(evaluations.values())
'''
"""An experiment that lacks nothing. Its steps are the pipeline's: no code of a function has to be looked for."""


def altered(folder: Path, old: str, new: str, text: str | None = None) -> Path:
    """exp001, or this text, under its own name, with one place changed."""
    text = WHOLE.read_text() if text is None else text
    assert text.count(old) >= 1
    page = folder / "docs" / "experiments.md"
    page.parent.mkdir(exist_ok=True)
    page.write_text("# Experiments\n")
    file = folder / "experiments" / WHOLE.name
    file.parent.mkdir(exist_ok=True)
    file.write_text(text.replace(old, new))
    return file


@pytest.mark.parametrize("file", sorted((PROJECT / "experiments").glob("exp*.py")), ids=lambda file: file.stem)
def test_every_experiment_here_lacks_nothing(file: Path) -> None:
    assert check(file) == []


def test_a_new_file_is_a_graph_and_says_what_is_left_to_write(tmp_path: Path) -> None:
    (tmp_path / "exp041_before.py").write_text("")
    file = new(tmp_path, ISSUE, "Does a slower rate help?")
    assert file.name == "exp042_does_a_slower_rate_help.py"
    said = check(file)
    left = [number for number, line in enumerate(file.read_text().splitlines(), 1) if "TODO" in line]
    assert len(said) == len(left) == 7 and all("TODO" in lack.what for lack in said)
    assert [lack.line for lack in said] == [1] * 5 + left[5:]
    assert fields(file.read_text())["Issue"].startswith(ISSUE)
    assert len(sanity(load_graph(file)).nodes) == 16
    file.write_text(f"{file.read_text()}# TODO: a second report\n")
    assert [lack.what for lack in check(file)][-1] == "not written yet: # TODO: a second report"
    file.write_text(file.read_text().replace("TODO: ", "").replace("TODO", "Does it end lower?"))
    again = tmp_path / "written"
    again.mkdir()
    written = shutil.copy(file, again)
    assert [lack.what for lack in check(Path(written))] == ["Question asks nothing"]


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        ("Hypothesis. Yes:", "We think:", "its docstring does not say: Hypothesis"),
        ("Definition of done. Nine", "Definition of done. TODO Nine", "Definition of done is not written yet: TODO"),
        ("Issue. docs/experiments.md", "Issue. docs/nothing.md", "Issue leads nowhere: docs/nothing.md"),
        ("Issue. docs/experiments.md", "Issue. ../../../etc/hostname", "Issue leads nowhere: ../../../etc/hostname"),
        (
            "from itertools import pairwise",
            "import argparse\nfrom itertools import pairwise",
            "it takes arguments: imports argparse",
        ),
        (
            "SEEDS = (1, 2, 3)",
            'import os\nSEEDS = (1, 2, int(os.environ.get("THIRD", "3")))',
            "it takes arguments: os.environ",
        ),
        ("SEEDS = (1, 2, 3)", "import sys\nSEEDS = (1, 2, len(sys.argv) + 100)", "it takes arguments: sys.argv"),
        ("SEEDS = (1, 2, 3)", "from os import environ\nSEEDS = (1, 2, 3)", "it takes arguments: imports os.environ"),
        (
            "SEEDS = (1, 2, 3)",
            "from sys import argv as words\nSEEDS = (1, 2, 3)",
            "it takes arguments: imports sys.argv",
        ),
        ("SEEDS = (1, 2, 3)", "import os as o\nSEEDS = (1, 2, len(o.environ))", "it takes arguments: os.environ"),
        ("SEEDS = (1, 2, 3)", "from os import *\nSEEDS = (1, 2, 3)", "it takes arguments: imports os.*"),
        ('name="exp001_grammar_scaling"', 'name="another"', "it registers another, and is exp001_grammar_scaling"),
        ("    seeds=SEEDS,\n", "    seeds=(*SEEDS, 9),\n", "with seed 9"),
        ("experiment = Registration(", "registered = Registration(", "it states no registration"),
    ],
)
def test_each_lack_is_found(tmp_path: Path, old: str, new: str, what: str) -> None:
    found = check(altered(tmp_path, old, new))
    assert any(what in lack.what and lack.cure for lack in found), found
    if "arguments" in what:
        line = altered(tmp_path, old, new).read_text().splitlines()[found[0].line - 1]
        assert re.split(r"[. ]", what)[-1] in line


def test_a_file_without_a_docstring_lacks_every_field(tmp_path: Path) -> None:
    file = tmp_path / "exp001_silent.py"
    file.write_text("steps = []\n")
    what = [lack.what for lack in check(file)]
    assert what == ["it states no registration", "it has no docstring"]
    assert set(fields("\n\n".join(f"{field}. said" for field in FIELDS))) == set(FIELDS)


@pytest.mark.parametrize(
    ("issue", "title"),
    [
        ("not an address", "A title"),
        ("https://host", "A title"),
        ('https://host/1"""+print("executed")+"""', "A title"),
        ("https://host/\\x22", "A title"),
        (ISSUE, 'Ends """ the docstring'),
        (ISSUE, "a\nb c"),
        (ISSUE, "{{ 7 * 7 }} templates"),
        (ISSUE, "\\x22 escapes"),
        (ISSUE, "ab"),
    ],
)
def test_what_cannot_stand_in_a_file_makes_none(tmp_path: Path, issue: str, title: str) -> None:
    with pytest.raises(UsageError):
        new(tmp_path, issue, title)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "line",
    [
        'SEEDS = (1, 2, 100 + len(__import__("sys").argv))',
        'import sys; SEEDS = (1, 2, 100 + len(sys.__dict__["argv"]))',
        "import sys; SEEDS = (1, 2, 100 + len(sys.orig_argv))",
        'import os; SEEDS = (1, 2, int(getattr(os, "environ").get("THIRD", "3")))',
        'import posix; SEEDS = (1, 2, int(posix.environ.get(b"THIRD", b"3")))',
        'import os; SEEDS = (1, 2, 100 + len(os.path.expandvars("$THIRD")))',
        'import os; SEEDS = (1, 2, 100 + len(os.path.expanduser("~")))',
        "import sys; SEEDS = (1, 2, 100 + len(sys.stdin.read()))",
        'import os; SEEDS = (1, 2, 100 + len(os.listdir(".")))',
        'SEEDS = (1, 2, 100 + len(open("/etc/hostname").read()))',
    ],
)
def test_whatever_way_it_takes_arguments_another_graph_tells(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    file = altered(tmp_path, "SEEDS = (1, 2, 3)", line, SMALL)
    assert check(file) == [], "the syntax does not tell"
    (found,) = check_elsewhere(file)
    assert found.what.startswith("it takes arguments: loaded with others") and found.cure


@pytest.mark.long
@pytest.mark.parametrize("name", ["exp001_grammar_scaling", "exp009_chat"])
def test_what_takes_no_arguments_is_the_same_elsewhere(name: str) -> None:
    assert check_elsewhere(PROJECT / "experiments" / f"{name}.py") == []


@pytest.mark.long
@pytest.mark.parametrize(
    ("line", "within", "found"),
    [
        ("import os; os._exit(0)", 60, "ended with status 0"),
        ("import signal; signal.pause()", 5, "no end within 5 seconds"),
    ],
    ids=["exit", "forever"],
)
def test_a_file_that_ends_or_keeps_the_process_is_not_loaded_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, within: int, found: str
) -> None:
    """With status 0, as of a file that lacks nothing, the command would have ended in the first place."""
    monkeypatch.setattr("marin.plugins.lab.conventions.purity.SECONDS", within)
    file = altered(tmp_path, "SEEDS = (1, 2, 3)", f"{line}\nSEEDS = (1, 2, 3)", SMALL)
    ended = CliRunner().invoke(command, ["check", str(file), "--static"])
    assert isinstance(ended.exception, UsageError) and found in str(ended.exception)


def test_no_file_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        ended = CliRunner().invoke(command, ["check", "--static"])
        assert isinstance(ended.exception, UsageError) and "no experiment files" in str(ended.exception)
        (tmp_path / "experiments").mkdir(exist_ok=True)


def test_the_commands(tmp_path: Path) -> None:
    runner = CliRunner()
    made = runner.invoke(command, ["new", ISSUE, "Is it so?", "--folder", str(tmp_path)])
    file = made.stdout.strip()
    assert made.exit_code == 0 and Path(file).name == "exp001_is_it_so.py"
    asked = runner.invoke(command, ["check", file, "--static", "--json"])
    assert asked.exit_code == 1 and len(json.loads(asked.stdout)[file]) == 7
    whole = runner.invoke(command, ["check", str(altered(tmp_path, "SEEDS", "SEEDS", SMALL)), "--static"])
    assert whole.exit_code == 0 and whole.stdout == ""


def test_the_forms_of_issues_and_pull_requests_have_the_fields() -> None:
    """Of what an experiment file says, a form asks for all but the link to itself; a pull request names its issue."""
    forms = PROJECT / ".github"
    asked = [field for field in FIELDS if field != "Issue"]
    body = yaml.safe_load((forms / "ISSUE_TEMPLATE" / "experiment.yml").read_text("utf-8"))["body"]
    needed = [item["attributes"]["label"] for item in body if item.get("validations", {}).get("required")]
    assert needed == asked
    text = (forms / "pull_request_template.md").read_text("utf-8")
    assert re.findall(r"^## (.*)$", text, re.M) == asked and "Fixes #ISSUE" in text
    for form in ("bug", "infrastructure"):
        body = yaml.safe_load((forms / "ISSUE_TEMPLATE" / f"{form}.yml").read_text("utf-8"))["body"]
        assert "Definition of done" in [item["attributes"]["label"] for item in body]
