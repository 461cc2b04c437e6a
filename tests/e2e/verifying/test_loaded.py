"""What a verification loads: of the plugins those alone that the recipe names."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.e2e.conftest import Project

VERIFY = """
import json, sys
from marin.cli.main import run
status = run(["-q", "verify", "latest", *sys.argv[1:]])
loaded = sorted({".".join(name.split(".")[:3]) for name in sys.modules if name.startswith("marin.plugins.")})
print(json.dumps([status, loaded]))
"""


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
    status, loaded = json.loads(project.python(VERIFY, *options).stdout.splitlines()[-1])
    assert (status in (0, 4), loaded) == (True, named)
