"""A track from start to end, with trainings that happened: run, verify, submit, list, site, the command that the page gives."""

# Taken by their commands: marin.plugins.lab, marin.plugins.sharing.

from __future__ import annotations

import json
import re
import shlex
from html import unescape
from typing import TYPE_CHECKING

import pytest

from marin.recipe.cost import work_of
from marin.recipe.schema import from_mapping
from marin.record.verdicts import NAMES
from tests.e2e.conftest import PARAMS

if TYPE_CHECKING:
    from tests.e2e.conftest import Project

BASE = from_mapping(PARAMS, where="PARAMS")
FLOPS = work_of("train", BASE).flops
TRACK = f'''"""How low does the loss go for the FLOPs of six train steps?"""
from marin.preregistration.registration import Metric, Registration, Track
from marin.recipe.schema import *

experiment = Registration(
    name="exp001_six", question="How low does the loss go?", hypothesis="Below 6.", primary=Metric(name="evaluate.loss"),
    arms={{"base": {BASE!r}}}, baseline="base", seeds=(3,), test="welch", track=Track(flops={FLOPS!r}))
'''

pytestmark = pytest.mark.e2e


@pytest.mark.long(seconds=30)
def test_a_run_is_verified_admitted_listed_and_shown(project: Project) -> None:
    def marin(*words: str) -> str:
        done = project.marin("-q", *words)
        assert done.returncode == 0, (words, done.stdout, done.stderr)
        return done.stdout

    (project.folder / "exp001_six.py").write_text(TRACK)
    marin("experiment", "register", "exp001_six.py")
    (project.folder / "params.json").write_text(json.dumps(PARAMS))
    marin("train", "--config-json", "params.json", "trainer.num_steps=3")
    submit = ("speedrun", "submit", "--track", "exp001")
    (whole, short) = (
        row["run"] for row in sorted(json.loads(marin("ls", "runs", "--json")), key=lambda row: row["started"])
    )
    for run in (whole, short):
        early = project.marin("-q", *submit, run)
        assert early.returncode == 3 and "was not replayed whole" in early.stderr, "nobody looked yet"
        verdicts = json.loads(marin("verify", run, "--json"))["verdicts"]
        assert {verdicts[name] for name in NAMES} == {"PASS"}
        entered = json.loads(marin(*submit, run, "--json"))
        assert entered["run"] == run and entered["event"] is not None

    listed = json.loads(marin("speedrun", "list", "exp001", "--json"))
    measured = {
        run: json.loads(marin("show", run, "--json"))["steps"]["evaluate"]["metrics"]["loss"] for run in (whole, short)
    }
    assert {row["run"]: row["score"] for row in listed} == measured
    assert [row["run"] for row in listed] == sorted(measured, key=measured.__getitem__)
    assert {row["run"]: row["flops"] for row in listed} == {whole: FLOPS, short: FLOPS / 2}

    assert marin("site", "public") == "public/index.html\n"
    assert marin("speedrun", "site", "public") == "public/speedruns/index.html\n"
    index = (project.folder / "public" / "index.html").read_text("utf-8")
    assert 'href="speedruns/index.html"' in index and f'href="runs/{whole}/report.html"' in index
    page = (project.folder / "public" / "speedruns" / "exp001_six.html").read_text("utf-8")
    asked = [unescape(text) for text in re.findall(r"<pre[^>]*>(marin --root ROOT verify .*?)</pre>", page)]
    assert [shlex.split(command)[4] for command in asked] == [row["run"] for row in listed]
    for command in asked:
        words = shlex.split(command.replace("ROOT", str(project.root)))[1:]
        done = project.marin("-q", *words, "--only", "ledger", "--no-record", "--json")
        assert json.loads(done.stdout)["verdicts"]["ledger"] == "PASS", "it is read under the key that the page names"
