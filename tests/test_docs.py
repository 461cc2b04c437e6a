"""Every command says what it does with an example, and the pages say what the commands say."""

from __future__ import annotations

import html
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from bench.house import gauges
from marin.cli.lazy import LazyGroup
from marin.cli.main import marin
from marin.cli.reference import commands, page

PROJECT = Path(__file__).resolve().parent.parent
ALL = {path: command for path, command, _ in commands()}
WORKING = {path: command for path, command in ALL.items() if not isinstance(command, click.Group)}


@pytest.mark.parametrize("path", ALL)
def test_every_command_has_help(path: str) -> None:
    text = ALL[path].help or ""
    first = text.strip().splitlines()[0] if text.strip() else ""
    assert first.endswith("."), "the help begins with one sentence on one line"
    assert len(first) <= 110


@pytest.mark.parametrize("path", WORKING)
def test_every_command_has_an_example_that_parses(path: str) -> None:
    examples = (WORKING[path].help or "").partition("Examples:")[2]
    lines = [line.strip() for line in examples.splitlines() if path in line]
    assert lines, "the help has an example that begins with the command"
    for line in lines:
        used = set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", line.partition(path)[2].partition("|")[0]))
        known = {name for param in WORKING[path].params for name in (*param.opts, *param.secondary_opts)}
        assert used <= known | {"--root"}, line


@pytest.mark.parametrize("path", WORKING)
def test_every_option_has_help(path: str) -> None:
    silent = [param.name for param in WORKING[path].params if isinstance(param, click.Option) and not param.help]
    assert silent == []


SAID = {
    f"{path} {name}": entry.help
    for path, command in {"marin": marin, **ALL}.items()
    if isinstance(command, LazyGroup)
    for name, entry in command.all_members.items()
}
assert {"marin ledger", "marin ledger append"} <= SAID.keys()


@pytest.mark.parametrize("name", SAID)
def test_the_overview_says_what_the_command_says(name: str) -> None:
    assert SAID[name] == (ALL[name].help or "").strip().splitlines()[0]


WITHOUT_DATA = {
    "marin ledger proof": "prints a tlog-proof, a format of its own",
    "marin store get": "writes the bytes themselves",
    "marin store pin": "prints nothing",
    "marin store unpin": "prints nothing",
    "marin trust add": "prints nothing",
    "marin trust rm": "prints nothing",
    "marin experiment new": "prints the path of the file it made",
    "marin speedrun site": "prints the path of its first page",
    "marin data fetch": "prints the paths of what it brought",
    "marin mlperf package": "prints the path of the folder it made",
    "marin mlperf system": "prints JSON, the form of a system description",
    "marin serve": "prints its address",
    "marin ui": "prints its address",
    "marin completion": "prints a script",
}


NO_COMMANDS = {"marin greet": "what an example of a plugin adds"}


def lost_commands(text: str) -> Iterator[str]:
    """Command lines of ours in backticks whose command, or one of whose options, is not there."""
    for line in re.findall(r"`(marin [a-z][^`\n]*)`", text):
        path, *words = re.split(r"[|;&>(]|, then", line)[0].split()
        while words and f"{path} {words[0]}" in ALL:
            path += f" {words.pop(0)}"
        command, used = ALL.get(path), set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", " ".join(words)))
        known = {name for param in getattr(command, "params", ()) for name in (*param.opts, *param.secondary_opts)}
        member = words and isinstance(command, click.Group) and re.match("[a-z]", words[0])
        if command is None or member or not used <= known | {"--help", "--root"}:
            yield line


@pytest.mark.skipif(bool(gauges.absent()), reason=f"without the plugins {gauges.absent()}")
def test_a_command_that_a_text_names_is_there() -> None:
    """Errors say what to do, docstrings and pages too; what they name may be renamed."""
    rooms = [path for room in ("ledger", "marin", "experiments") for path in (PROJECT / room).rglob("*")]
    files = [path for path in rooms if path.suffix in (".py", ".j2", ".html", ".js", ".mjs")]
    files += [PROJECT / name for name in PAGES if name != "CHANGELOG.md"]
    found = [
        f"{path.relative_to(PROJECT)}: {line}" for path in files for line in lost_commands(path.read_text("utf-8"))
    ]
    assert [item for item in found if item.partition(": ")[2] not in NO_COMMANDS] == []
    text = "`marin ledger fsck --json`, `marin verify RUN --only ledger`, `marin export RUN --hf DIR, then marin serve DIR`"
    assert list(lost_commands(text)) == []
    text = "see `marin fsck`, `marin ledger fsk`, `marin show RUN --events` or `marin ledger`"
    assert list(lost_commands(text)) == ["marin fsck", "marin ledger fsk", "marin show RUN --events"]


def test_every_command_that_prints_data_prints_json_too() -> None:
    without = {path for path, command in WORKING.items() if not any("--json" in param.opts for param in command.params)}
    assert without == {path for path in WITHOUT_DATA if path in ALL or not gauges.absent()}


WHERE = ("--devices", "--processes", "--topology", "--accelerator-type", "--runner", "--address", "--pause-at")
"""What says on what a training is executed."""
WHERE_AGAIN = ("--devices", "--processes", "--topology", "--accelerator-type")
"""Those of them that a verification takes, too."""


@pytest.mark.parametrize(
    ("door", "names"), [("marin train", WHERE), ("marin run", WHERE), ("marin verify", WHERE_AGAIN)]
)
def test_every_door_says_on_what_in_the_same_words(door: str, names: tuple[str, ...]) -> None:
    own, stage = words(door), words("marin stage")
    assert {name: own.get(name) for name in names} == {name: stage[name] for name in names}


def words(door: str) -> dict[str, str | None]:
    """The help of each option of a command."""
    options = [option for option in WORKING[door].params if isinstance(option, click.Option)]
    return {name: option.help for option in options for name in option.opts}


def test_every_command_takes_root() -> None:
    without = [path for path, command in WORKING.items() if not any("--root" in param.opts for param in command.params)]
    assert without == []


@pytest.mark.skipif(bool(gauges.absent()), reason=f"without the plugins {gauges.absent()}")
def test_the_page_of_commands_is_generated() -> None:
    committed = (PROJECT / "docs" / "commands.md").read_text("utf-8")
    assert committed == page(), "run `make docs`"
    for path in ALL:
        assert f"## {path}\n" in committed


def test_the_ledgers_reference_says_something_of_every_method() -> None:
    """A test of the ledger's own holds that it is generated."""
    text = (PROJECT / "ledger" / "REFERENCE.md").read_text("utf-8")
    assert re.findall(r"^- `.*`: *$", text, re.MULTILINE) == []


def test_the_readme_names_the_commands_and_only_those() -> None:
    text = (PROJECT / "README.md").read_text("utf-8")
    named = {match.strip() for match in re.findall(r"(?:^    |`)marin ((?:ledger |store )?[a-z][a-z-]+)", text, re.M)}
    assert {"verify", "ui", "sample", "trust", "doctor"} <= named
    assert {name for name in named if f"marin {name}" not in ALL} == set() or gauges.absent()
    targets = set(re.findall(r"^([a-z]+):", (PROJECT / "Makefile").read_text("utf-8"), re.M))
    assert set(re.findall(r"(?:^    |`)make ([a-z]+)", text, re.M)) <= targets


def test_the_readme_says_what_the_threat_model_says() -> None:
    """The first sentence of both is one promise."""
    promised = []
    for name in ("README.md", "docs/threat-model.md"):
        text = " ".join((PROJECT / name).read_text(encoding="utf-8").split()).replace("**", "")
        promised.append(re.split(r"PASS in every line.*? means: ", text)[1].partition(". ")[0])
    assert promised[0] == promised[1] and len(promised[0]) > 100


PAGES = [
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "AGENTS.md",
    "bench/RESULTS.md",
    *sorted(path.relative_to(PROJECT).as_posix() for path in (PROJECT / "docs").rglob("*.md")),
]


def anchors(text: str) -> set[str]:
    """What a link to a heading of this page may end in, as GitHub names headings."""
    text = re.sub(r"^(```+).*?^\1", "", text, flags=re.MULTILINE | re.DOTALL)
    found: dict[str, int] = {}
    for heading in re.findall(r"^#{1,6} +(.+?)[ #]*$", text, re.MULTILINE):
        shown = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        slug = re.sub(r"[^\w\- ]", "", shown.strip().lower()).replace(" ", "-")
        while slug in found:  # the second of one name ends in -1
            found[slug] += 1
            slug = f"{slug}-{found[slug]}"
        found[slug] = 0
    return set(found)


def astray(page: Path) -> Iterator[str]:
    """Links of a page that lead to no file of ours, or to no heading of one."""
    for link in re.findall(r"\]\((?!https?://|mailto:)([^)\s]+)", page.read_text("utf-8")):
        if any(f"marin/plugins/{plugin}/" in link for plugin in gauges.absent()):
            continue
        name, _, anchor = link.partition("#")
        there = page.parent / name if name else page
        if not there.exists() or (anchor and there.suffix == ".md" and anchor not in anchors(there.read_text("utf-8"))):
            yield link


@pytest.mark.parametrize("page_name", PAGES)
def test_links_between_files_lead_somewhere(page_name: str) -> None:
    assert list(astray(PROJECT / page_name)) == []


def test_a_link_that_leads_nowhere_would_be_found(tmp_path: Path) -> None:
    (tmp_path / "other.md").write_text(
        "# `marin ui`, W&B & more\n## Twice\n```\n# no heading\n```\n## Twice\n## [A](b.md)-C #\n"
    )
    page = tmp_path / "page.md"
    page.write_text(
        "# Here\n[1](#here) [2](other.md#marin-ui-wb--more) [3](other.md#twice-1) [4](other.md#a-c) [5](https://x.example/y#z)\n"
        "[6](#there) [7](other.md#no-heading) [8](other.md#twice-2) [9](none.md) [10](other.md#Here)\n"
    )
    assert list(astray(page)) == ["#there", "other.md#no-heading", "other.md#twice-2", "none.md", "other.md#Here"]


@pytest.mark.parametrize("page_name", ["docs/architecture.md", "CONTRIBUTING.md", "docs/threat-model.md"])
def test_files_that_a_page_names_are_there(page_name: str) -> None:
    """A path in backticks with a folder, and a file beside one that was named before it in the same paragraph."""
    text = re.sub(r"```.*?```", "", (PROJECT / page_name).read_text("utf-8"), flags=re.S)
    named = re.findall(r"`((?:ledger|marin|conf|docs|bench|tests)/[\w/.-]*)`", text)
    named = [name for name in named if not any(f"plugins/{plugin}/" in name for plugin in gauges.absent())]
    assert [name for name in named if not (PROJECT / name).exists()] == []
    assert len(named) > 3 or gauges.absent() or page_name == "docs/threat-model.md"
    assert gauges.absent() or list(lost(text)) == []


def lost(text: str) -> Iterator[str]:
    """Files of Python that a paragraph (or a row of a table) names and that are in no folder which it names."""
    for part in re.split(r"\n\n|\n(?=\|)", text):
        named = re.findall(r"`([\w./-]+)`", part)
        places = [Path(name) for name in named if "/" in name and (PROJECT / name).exists()]
        rooms = {place if (PROJECT / place).is_dir() else place.parent for place in (Path(), *places)}
        files = [name for name in named if name.endswith(".py")]
        yield from (name for name in files if not any((PROJECT / room / name).exists() for room in rooms))


def test_a_file_that_is_not_beside_would_be_found() -> None:
    assert list(lost("`marin/verify/verification.py`, then `record.py`")) == ["record.py"]
    assert list(lost("`marin/verify/derivation/record.py`, then `records.py`")) == []


def test_the_root_command_has_an_example() -> None:
    assert "Examples:" in (marin.help or "")


def test_every_page_has_its_place_on_the_site() -> None:
    """mkdocs.yml has the order tutorial, how-to, reference, explanation; a page that is not there is not found."""
    text = (PROJECT / "mkdocs.yml").read_text("utf-8").partition("\nnav:")[2]
    placed = re.findall(r"(?:: |- )\"?([\w./-]+\.(?:md|ipynb))", text)
    pages = {path.relative_to(PROJECT / "docs").as_posix() for path in (PROJECT / "docs").rglob("*.md")}
    pages |= {path.relative_to(PROJECT / "docs").as_posix() for path in (PROJECT / "docs").rglob("*.ipynb")}
    assert pages <= set(placed) and len(placed) == len(set(placed))
    parts = re.findall(r"^  - ([A-Z][\w ]+):$", text, re.MULTILINE)
    assert parts == ["Tutorial", "How to", "Reference", "Explanation"]


def test_experiments_that_a_page_names_are_there_and_each_has_its_registration() -> None:
    files = {path.stem: path.read_text("utf-8") for path in (PROJECT / "experiments").glob("exp[0-9]*.py")}
    pages = [PROJECT / "README.md", *(PROJECT / "docs").glob("*.md"), PROJECT / "bench" / "RESULTS.md"]
    named = {name for page in pages for name in re.findall(r"\bexp\d{3}_\w+", page.read_text("utf-8"))}
    following = f"exp{max(int(name[3:6]) for name in files) + 1:03d}"  # the number that `marin experiment new` gives
    examples = {f"{following}_rate", f"{following}_does_a_slower_rate_help"}
    assert named - set(files) == examples, "those that the reader is to write"
    assert [name for name, text in files.items() if not re.search(r"^experiment(: Registration)? = ", text, re.M)] == []


def test_the_readme_begins_with_one_screen_and_its_picture_shows_its_commands() -> None:
    """What stands before the first picture is read without scrolling; docs/site/terminal.py executes these commands."""
    text = (PROJECT / "README.md").read_text("utf-8")
    first, _, rest = text.partition("\n![")
    assert len(first.split()) <= 300 and len(first.splitlines()) <= 30
    block = re.search(r"(?:^    .*\n)+", first, re.MULTILINE)
    assert block is not None
    typed = [line.partition("  #")[0].strip() for line in block[0].splitlines()]
    assert len(typed) == 5
    picture = re.sub(r"<[^>]+>", "", (PROJECT / "docs" / "images" / "terminal.svg").read_text("utf-8"))
    shown = html.unescape(picture).replace("\xa0", " ")
    assert [command for command in typed if f"$ {command}" not in shown] == []
    order = [rest.find(part) for part in ("docs/images/seal.webp", "| **Tutorial** |")]
    assert text.find("docs/images/terminal.svg") > len(first) and order == sorted(order) and order[0] > 0


def test_make_help_prints_every_line_of_what_it_describes() -> None:
    """Its last line was cut: the number of lines was written beside them."""
    lines = (PROJECT / "Makefile").read_text("utf-8").split("\n\n")[0].splitlines()
    told = subprocess.run(["make", "-s", "help"], cwd=PROJECT, capture_output=True, text=True, check=True).stdout
    assert told.splitlines() == [line.removeprefix("# ") for line in lines]
    assert "make clean" in told
