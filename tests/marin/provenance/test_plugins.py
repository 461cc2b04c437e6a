"""Plugins are found by entry points; one that is not there, or that takes a name of another, changes nothing."""

from __future__ import annotations

import logging
import re
import subprocess
import sys
import tomllib
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path

import click
import pytest

from bench.house import gauges
from marin.cli import main
from marin.cli.lazy import Lazy, LazyGroup
from marin.errors import NotInstalled
from marin.provenance import plugins

COMMAND = """
import click

from marin.cli.lazy import Lazy

COMMANDS = {"greet": Lazy("greeting", "Say good day.")}
THIEF = {"other": Lazy("greeting", "Other."), "stage": Lazy("greeting", "Not the core's.")}
SECOND = {"serve": Lazy("greeting", "Not Marin's.")}


@click.command()
def greet() -> None:
    \"\"\"Say good day.\"\"\"
    click.echo("good day")
"""


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A distribution of somebody else, as pip leaves it: a module, and its entry points."""
    (tmp_path / "greeting.py").write_text(COMMAND)
    info = tmp_path / "greeting-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: greeting\nVersion: 1\n")
    (info / "entry_points.txt").write_text(
        "[marin.commands]\ngreeting = greeting:COMMANDS\naaa = greeting:THIEF\nzzz = greeting:SECOND\ngone = not_there:COMMANDS\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def test_a_command_of_somebody_else_is_a_command(installed: Path) -> None:
    program = "import sys; from marin.cli.main import run; sys.exit(run(sys.argv[1:]))"
    environment = {"PYTHONPATH": str(installed), "PATH": "", "HOME": str(installed)}
    for arguments, words in ((["greet"], "good day"), (["--help"], "Say good day."), (["greet", "--help"], "good day")):
        done = subprocess.run(
            [sys.executable, "-c", program, *arguments], env=environment, capture_output=True, text=True, check=True
        )
        assert words in done.stdout
    assert "Not the core's." not in done.stdout


def test_the_core_and_its_plugins_keep_their_names(installed: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        found = main.plugin_commands()
    assert "greet" in found and found.keys().isdisjoint({"stage", "other"})
    assert found["serve"].module.startswith("marin.plugins.")
    assert [f"plugin {name} are left out" in caplog.text for name in ("aaa", "zzz")] == [True, True]


def test_a_plugin_that_is_not_there_is_as_one_that_is_not_installed(installed: Path) -> None:
    assert "gone" not in plugins.points("marin.commands") and "greeting" in plugins.points("marin.commands")


def test_nobody_takes_the_name_of_one_of_ours(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    ours = plugins.own_points("marin.commands")
    assert ours
    name = next(iter(ours))
    other = EntryPoint(name, "json:loads", "marin.commands")
    monkeypatch.setattr(plugins, "entry_points", lambda group: EntryPoints([other]))
    with caplog.at_level(logging.WARNING):
        assert plugins.points("marin.commands")[name] == ours[name]
    assert f"left out: {name} of json:loads" in caplog.text


def test_a_command_of_the_core_asks_for_no_plugin() -> None:
    def asked() -> dict[str, Lazy]:
        raise AssertionError("nobody has to look")

    group = LazyGroup(name="marin", members={"ledger": main.COMMANDS["ledger"]}, others=asked)
    assert group.get_command(click.Context(group), "ledger") is not None


@pytest.mark.parametrize(
    ("group", "name"), [(group, name) for group in plugins.OWN_GROUPS for name in plugins.own_points(group)]
)
def test_nobody_judges_in_the_place_of_a_judge_that_is_missing(
    monkeypatch: pytest.MonkeyPatch, group: str, name: str
) -> None:
    honest = plugins.own_points(group)[name]
    other = EntryPoint(name, "json:loads", group)
    monkeypatch.setattr(plugins, "entry_points", lambda group: EntryPoints([other]))
    assert plugins.load_plugin(group, name, "a test") is honest.load()
    monkeypatch.setattr(plugins, "file_of", lambda module: None if module == honest.module else "a.py")
    with pytest.raises(NotInstalled):
        plugins.load_plugin(group, name, "a test")


def test_every_group_of_judges_is_marins_own() -> None:
    assert all(plugins.own_points(group) for group in ("marin.judges", "marin.documents", "marin.explanations"))
    assert {"marin.judges", "marin.documents", "marin.explanations"} <= set(plugins.OWN_GROUPS)


@pytest.mark.parametrize("value", ["", "!", ".:COMMANDS", "..a:b", "broken.inside:COMMANDS"])
def test_a_plugin_that_is_broken_is_as_one_that_is_not_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "__init__.py").write_text("1 / 0\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(plugins, "entry_points", lambda group: [EntryPoint("other", value, group)])
    assert "other" not in plugins.points("marin.commands")


@pytest.mark.parametrize("value", ["broken:COMMANDS", "json:COMMANDS"])
def test_a_plugin_of_others_that_does_not_load_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    (tmp_path / "broken.py").write_text("1 / 0\n")
    monkeypatch.syspath_prepend(tmp_path)
    ours = {name for name, _ in plugins.load_plugins("marin.commands")}
    monkeypatch.setattr(plugins, "entry_points", lambda group: [EntryPoint("other", value, group)])
    assert {name for name, _ in plugins.load_plugins("marin.commands")} == ours


def test_an_unknown_command_names_the_plugins_that_are_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    plugin = next(iter(plugins.own_points("marin.commands").values()))
    command, known = next(iter(plugin.load())), plugins.file_of
    group = LazyGroup(name="marin", members={}, others=main.plugin_commands, lacking=main.plugins_not_there)
    monkeypatch.setattr(plugins, "file_of", lambda module: None if module == plugin.module else known(module))
    with pytest.raises(click.UsageError) as refused:
        group.resolve_command(click.Context(group), [command])
    assert f"No such command '{command}'" in str(refused.value)
    assert f"the plugin {plugin.name} is not installed" in str(refused.value)


PAGE = (Path(__file__).resolve().parents[3] / "docs" / "plugins.md").read_text("utf-8")


def test_the_page_has_every_group_and_every_plugin() -> None:
    table = tomllib.loads((gauges.PROJECT / "pyproject.toml").read_text("utf-8"))["project"]["entry-points"]
    groups = {group for group in table if group.startswith("marin.")}
    assert set(re.findall(r"^\| `(marin\.[a-z]+)` \|", PAGE, re.MULTILINE)) == groups
    named = set(re.findall(r"^\| `([a-z]+)` \|", PAGE, re.MULTILINE))
    assert named == {path.name for path in gauges.PLUGINS.iterdir() if (path / "plugin.py").is_file()} | {
        *gauges.absent()
    }


KNOWN = "from marin.kinds.known import kind_of, own_kind; k = 'greeting.said/v1'; assert kind_of(k) and not own_kind(k)"


def test_the_plugin_of_the_page_is_installed_and_has_its_command_and_its_type(tmp_path: Path) -> None:
    blocks = dict(re.findall(r"```(python|toml)\n(.*?)```", PAGE, re.DOTALL))
    source, site = tmp_path / "source", tmp_path / "site"
    source.mkdir()
    (source / "greeting.py").write_text(blocks["python"])
    (source / "pyproject.toml").write_text(blocks["toml"])
    install = ["-m", "uv", "pip", "install", "--quiet", "--offline", "--no-deps", "--no-build-isolation"]
    here = ["--python", sys.executable, "--cache-dir", str(tmp_path / "cache"), "--target", str(site), str(source)]
    subprocess.run([sys.executable, *install, *here], check=True, capture_output=True)
    program = f"import sys; from marin.cli.main import run; {KNOWN}; sys.exit(run(['greet']))"
    environment = {"PYTHONPATH": str(site), "PATH": "", "HOME": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "good day\n"
