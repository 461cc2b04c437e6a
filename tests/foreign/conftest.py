"""The list of the judges: each test says what a judge accepted and what it refused, and the run ends with the table.

A judge that only ever says yes proves nothing: one that took part and refused nothing (or accepted nothing) fails the run.
"""

from dataclasses import dataclass, field
from pathlib import Path

import pytest

HERE = Path(__file__).parent
BEGIN, END = "<!-- judges -->\n", "<!-- /judges -->\n"


@dataclass
class Judged:
    """One judge: who it is, and what it said."""

    name: str
    version: str
    accepted: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)

    def accepts(self, what: str) -> None:
        """Note that the judge took `what`, which is right."""
        self.accepted.append(what)

    def refuses(self, what: str) -> None:
        """Note that the judge refused `what`, which is altered or wrong."""
        self.refused.append(what)


def pytest_addoption(parser):
    parser.addoption("--judges-table", metavar="FILE", help="also write the table of judges into this document")


def pytest_configure(config):
    config.judged = {}


def pytest_collection_modifyitems(items):
    for item in items:
        if HERE in Path(item.path).parents:
            item.add_marker(pytest.mark.foreign)


@pytest.fixture
def judge(request):
    """`judge(name, version)`: the record of one judge, the same for every test that names it."""

    def record(name, version):
        return request.config.judged.setdefault(name, Judged(name, version))

    return record


def rows(judged):
    yield "| judge | version | accepted | refused |"
    yield "| --- | --- | --- | --- |"
    for one in sorted(judged.values(), key=lambda one: one.name.lower()):
        yield f"| {one.name} | {one.version} | {'; '.join(one.accepted)} | {'; '.join(one.refused)} |"


def pytest_sessionfinish(session, exitstatus):
    one_sided = [one.name for one in session.config.judged.values() if not (one.accepted and one.refused)]
    if exitstatus == 0 and one_sided and not session.config.option.keyword:
        session.config.one_sided = one_sided
        session.exitstatus = 1


def pytest_terminal_summary(terminalreporter, exitstatus, config):
    if not config.judged:
        return
    table = "\n".join(rows(config.judged)) + "\n"
    terminalreporter.section("judges from elsewhere")
    terminalreporter.write(table)
    terminalreporter.write_line(f"{len(config.judged)} judges")
    for name in getattr(config, "one_sided", []):
        terminalreporter.write_line(f"ERROR {name} did not both accept and refuse something")
    if (target := config.getoption("--judges-table")) and exitstatus == 0:
        text = Path(target).read_text()
        before, after = text.split(BEGIN)[0], text.split(END)[1]
        Path(target).write_text(before + BEGIN + table + END + after)
