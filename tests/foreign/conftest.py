"""The list of the judges: each test says what a judge accepted and what it refused, and the run ends with the table.

A judge that only ever says yes proves nothing: one that took part and refused nothing (or accepted nothing) fails the run.
A run of some tests alone writes the rows of judges that accepted and refused something in it, and leaves the others as they are.
"""

from dataclasses import dataclass, field
from pathlib import Path

import judges
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


def pytest_itemcollected(item):  # of this folder alone, and so is a conftest's hook
    item.add_marker(pytest.mark.foreign)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item):
    return (yield from skipped_out_of_reach(item))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    return (yield from skipped_out_of_reach(item))


def skipped_out_of_reach(item):
    """What a hook gives; a judge that only GitHub has, which is not reached from here, skips the test by its name."""
    try:
        return (yield)
    except judges.OutOfReach as reason:
        item.config.judged = {name: one for name, one in item.config.judged.items() if one.accepted or one.refused}
        pytest.skip(str(reason)[:300])


@pytest.fixture(scope="module", autouse=True)
def own_state(tmp_path_factory):
    """Modules make logs of one name under keys of their own: what one of them saw is no pin of another's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield


@pytest.fixture
def judge(request):
    """`judge(name, version)`: the record of one judge, the same for every test that names it."""

    def record(name, version):
        return request.config.judged.setdefault(name, Judged(name, version))

    return record


HEAD = "| judge | version | accepted | refused |\n| --- | --- | --- | --- |\n"


def row(one):
    return f"| {one.name} | {one.version} | {'; '.join(one.accepted)} | {'; '.join(one.refused)} |\n"


def table_of(judged, kept=()):
    """The table, by name: a row for each judge, and those lines of an earlier table that are ``kept``."""
    found = {line.split(" | ")[0].removeprefix("| "): line + "\n" for line in kept}
    found |= {one.name: row(one) for one in judged}
    return HEAD + "".join(found[name] for name in sorted(found, key=str.lower))


def written(page, judged, whole):
    """A document with the table in it; where not the whole list was asked, or could be, the others' rows stay."""
    before, shown, after = page.split(BEGIN)[0], page.split(BEGIN)[1].split(END)[0], page.split(END)[1]
    if whole:
        return before + BEGIN + table_of(judged) + END + after
    both = [one for one in judged if one.accepted and one.refused]
    return before + BEGIN + table_of(both, shown.splitlines()[2:]) + END + after


def pytest_collection_finish(session):
    asked = {Path(item.path) for item in session.items}
    session.config.whole_list = set(HERE.rglob("test_*.py")) <= asked and not session.config.option.keyword


def pytest_sessionfinish(session, exitstatus):
    one_sided = [one.name for one in session.config.judged.values() if not (one.accepted and one.refused)]
    if exitstatus == 0 and one_sided and not session.config.option.keyword:
        session.config.one_sided = one_sided
        session.exitstatus = 1


def pytest_terminal_summary(terminalreporter, exitstatus, config):
    if not config.judged:
        return
    judged = list(config.judged.values())
    terminalreporter.section("judges from elsewhere")
    terminalreporter.write(table_of(judged))
    terminalreporter.write_line(f"{len(config.judged)} judges")
    for name in getattr(config, "one_sided", []):
        terminalreporter.write_line(f"ERROR {name} did not both accept and refuse something")
    if (target := config.getoption("--judges-table")) and exitstatus == 0:
        whole = config.whole_list and not terminalreporter.stats.get("skipped")
        Path(target).write_text(written(Path(target).read_text(), judged, whole))
