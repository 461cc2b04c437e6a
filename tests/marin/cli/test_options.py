from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import click
from click.testing import CliRunner

from marin.cli.options import FILE, argument, flag, group, option, takes
from marin.cli.verifying.verify import forwarded, verify


@dataclass(frozen=True)
class Cluster:
    address: str | None = option("HOST", "Where it is.")
    machines: int = option("N", "How many.", least=1, default=1)


@dataclass(frozen=True)
class Fitting:
    names: tuple[str, ...] = argument("[NAME]...", nargs=-1)
    tags: tuple[str, ...] = option("TAG", "What it is about.", "--tag", multiple=True)
    cluster: Cluster = group(Cluster)
    page: Path | None = option("FILE", "Where it goes.", type=FILE)
    as_json: bool = flag("Print one JSON object.", "-j", "--json")


@click.command()
@takes(Fitting)
@click.pass_context
def fit(ctx: click.Context, options: Fitting) -> None:
    click.echo(repr((ctx.info_name, options)))


def output(*words: str, status: int = 0) -> str:
    result = CliRunner().invoke(fit, words)
    assert result.exit_code == status, result.output
    return result.output.rstrip("\n")


def test_a_command_gets_its_options_as_one_structure() -> None:
    line = ("a", "b", "--tag", "x", "--tag", "y", "--address", "here", "--machines", "2", "--page", "p.html", "-j")
    given = Fitting(("a", "b"), ("x", "y"), Cluster("here", 2), Path("p.html"), True)
    assert output(*line) == repr(("fit", given))
    assert output() == repr(("fit", Fitting((), (), Cluster(None, 1), None, False)))


def test_help_has_them_in_the_order_of_the_fields() -> None:
    words = ("--tag TAG", "--address HOST", "--machines N", "--page FILE", "-j, --json")
    places = [output("--help").index(word) for word in words]
    assert places == sorted(places)
    assert "not in the range" in output("--machines", "0", status=2)


def test_what_was_given_is_written_again_for_another_process() -> None:
    line = ["latest", "--no-screen", "--sample", "2", "--setting", "devices=1", "--setting", "devices=2", "--json"]
    context = verify.make_context("verify", [*line, "--html", "page.html"])
    assert sorted(forwarded(context, ("html",))) == sorted(line[1:])
