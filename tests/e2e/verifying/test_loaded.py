"""What a verification loads: of the plugins those alone that the recipe names; and what it says without one of these."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.e2e.conftest import LOADED

if TYPE_CHECKING:
    from tests.e2e.conftest import Project

VERIFY = """
import json, sys
from marin.cli.main import run
status = run(["-q", "verify", "latest", *sys.argv[1:]])
loaded = sorted({".".join(name.split(".")[:3]) for name in sys.modules if name.startswith("marin.plugins.")})
unused = {"datasets", "deepdiff", "duckdb", "levanter.adaptor.lora", "levanter.store.cache", "polars", "zephyr"}
print(json.dumps([status, loaded, sorted(unused & set(sys.modules))]))
"""
"""Neither is what Levanter's own data sets import to build caches, nor its adapters where a recipe has none."""


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--only", "ledger,artifacts"], []),
        pytest.param([], ["marin.plugins.grammar"], marks=pytest.mark.long(seconds=40)),
    ],
)
def test_no_plugin_is_loaded_but_those_that_the_recipe_names(
    project: Project, options: list[str], named: list[str]
) -> None:
    status, loaded, unused = json.loads(project.python(VERIFY, *options).stdout.splitlines()[-1])
    assert (status in (0, 4), loaded, unused) == (True, named, [])


ASKS = "marin.plugins.follow"
"""What may ask a training to stop is loaded with each step that executes, whatever its recipe names."""


def test_a_training_loads_no_plugin_but_those_that_the_recipe_names(trained: Project) -> None:
    loaded = json.loads((trained.home / LOADED).read_text())
    assert [name for name in loaded if name != ASKS] == ["marin.plugins.grammar"]


WITHOUT = """
import sys
from marin.provenance import plugins
known = plugins.file_of
plugins.file_of = lambda module: None if module.startswith("marin.plugins.grammar") else known(module)
from marin.cli.main import run
sys.exit(run(["-q", "verify", "latest", "--json", "--only", "data"]))
"""


def test_a_plugin_that_is_not_there_is_named_and_passes_nothing(project: Project) -> None:
    done = project.forked(WITHOUT, check=False)
    report = json.loads(done.stdout)
    assert (done.returncode, report["verdicts"]["data"]) == (3, "UNAVAILABLE"), done.stderr
    assert "grammar" in " ".join(report["details"]["data"])
