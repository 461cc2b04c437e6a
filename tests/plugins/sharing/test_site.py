"""`marin site`: a root as one folder whose links lead somewhere, drawn again only where something happened."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from ledger import Draft, digest_bytes
from marin.history.runs import stream_of
from marin.plugins.sharing.pages.site import write_site
from marin.recipe.schema import Recipe, digest, recorded
from marin.record import events
from marin.record.root import Root, open_root
from tests.plugins.lab.test_speedrun import FILE, read, record

Marin = Any
SOME = "sha256:" + "b" * 64


def begin(root: Root, run: str) -> None:
    """A run whose corpus is made and whose training is not."""
    started = events.RunStarted(
        run=run,
        pipeline="default",
        plan=SOME,
        recipe_digest=digest(Recipe()),
        recipe=recorded(Recipe()),
        code={},
        environment={},
    )
    output = events.Output(kind="corpus", digest=SOME, size=2_000_000, artifact=SOME)
    made = events.StepCompleted(
        run=run, step="corpus", identity=SOME, inputs={}, seconds=1.0, metrics={}, output=output
    )
    bodies: list[tuple[str, events.Body]] = [(events.RUN_STARTED, started), (events.STEP_COMPLETED, made)]
    root.append([Draft(kind, stream_of(run), events.write(body)) for kind, body in bodies])


def test_every_link_leads_to_a_page_and_only_what_changed_is_drawn_again(
    marin: Marin, root: Path, tmp_path: Path
) -> None:
    Path("exp9_lowest.py").write_text(FILE)
    assert marin("experiment", "register", "exp9_lowest.py").status == 0
    own, site = open_root(), tmp_path / "site"
    record(own, "one", Recipe(seed=3), 3.25)
    begin(own, "two")
    first = marin("site", str(site), "--json").json
    assert first["kept"] == 0 and Path(first["index"]).is_file()
    index = read(site / "index.html")
    pages = {path.relative_to(site).as_posix() for path in site.rglob("*.html")}
    assert index.links <= pages, "no link leads nowhere"
    text = (site / "index.html").read_text("utf-8")
    assert set(index.loaded) <= {"script"} and "src=" not in text, "nothing is loaded: both scripts stand in the page"
    assert text.count("'sha256-") == 2 and "default-src 'none'" in text, "and no other may run"
    assert {"experiments/exp9_lowest.html", "speedruns/index.html", f"outputs/{'b' * 64}.html"} <= index.links
    assert {"runs/one/report.html", "runs/two/report.html", "runs/two/lineage.html"} <= index.links
    assert "3.2500" in index.words and "open" in index.words and "2.0 MB" in index.words
    assert "How low does the loss go?" in index.words
    assert marin("site", str(site), "--json").json | {"index": ""} == {"index": "", "drawn": 0, "kept": first["drawn"]}
    before = (site / "runs" / "one" / "report.html").stat().st_mtime_ns
    (site / "runs" / "two" / "report.html").unlink()
    record(own, "three", Recipe(seed=4), 3.5)
    again = marin("site", str(site), "--json").json
    assert again["kept"] > 0 and (site / "runs" / "one" / "report.html").stat().st_mtime_ns == before
    assert (site / "runs" / "two" / "report.html").is_file(), "what was deleted is drawn again"
    assert "3.5000" in read(site / "index.html").words


def test_both_commands_may_write_into_one_folder(marin: Marin, root: Path, tmp_path: Path) -> None:
    Path("exp9_lowest.py").write_text(FILE)
    assert marin("experiment", "register", "exp9_lowest.py").status == 0
    record(open_root(), "one", Recipe(seed=3), 3.25)
    site = tmp_path / "site"

    def files() -> dict[str, bytes]:
        return {path.relative_to(site).as_posix(): path.read_bytes() for path in site.rglob("*") if path.is_file()}

    first = marin("site", str(site), "--json").json
    whole = files()
    assert marin("speedrun", "site", str(site)).out == f"{site}/speedruns/index.html\n"
    assert files() == whole, "the same pages, in the same places, and no other"
    assert marin("site", str(site), "--json").json | {"index": ""} == {"index": "", "drawn": 0, "kept": first["drawn"]}
    assert files() == whole
    alone = tmp_path / "alone"
    assert marin("speedrun", "site", str(alone)).status == 0
    assert {path.relative_to(alone).as_posix() for path in alone.rglob("*.html")} == {
        "speedruns/index.html",
        "speedruns/exp9_lowest.html",
    }
    assert marin("site", str(alone), "--json").json["kept"] == 2, "what the other drew is not drawn again"


def test_what_the_site_has_no_longer_is_removed_and_nothing_else(marin: Marin, root: Path, tmp_path: Path) -> None:
    own, site, other = open_root(), tmp_path / "site", tmp_path / "other.html"
    record(own, "one", Recipe(seed=3), 3.25)
    record(own, "two", Recipe(seed=4), 3.5)
    assert marin("site", str(site)).status == 0
    pages = sorted(path.name for path in (site / "runs" / "two").iterdir())
    assert "report.html" in pages
    assert marin("run", "two", "archive").status == 0
    changed, mine = site / "runs" / "two" / "lineage.html", site / "runs" / "two" / "mine.html"
    changed.write_text("of somebody else")
    mine.write_text("mine")
    other.write_text("outside")
    said = json.loads((site / "site.json").read_bytes())
    said["../other.html"] = {"source": SOME, "content": digest_bytes(b"outside")}
    (site / "site.json").write_text(json.dumps(said))
    assert marin("site", str(site)).status == 0
    assert sorted(path.name for path in (site / "runs" / "two").iterdir()) == ["lineage.html", "mine.html"]
    assert (site / "runs" / "one" / "report.html").is_file() and other.is_file()
    assert marin("run", "two", "restore").status == 0 and marin("site", str(site)).status == 0
    assert sorted(path.name for path in (site / "runs" / "two").iterdir()) == sorted([*pages, "mine.html"])


def test_what_was_overwritten_is_drawn_again(marin: Marin, root: Path, tmp_path: Path) -> None:
    record(open_root(), "one", Recipe(seed=3), 3.25)
    site = tmp_path / "site"
    assert marin("site", str(site)).status == 0
    before = (site / "index.html").read_bytes()
    (site / "index.html").write_text("another page")
    assert marin("site", str(site), "--json").json["drawn"] == 1
    assert (site / "index.html").read_bytes() == before


@pytest.mark.parametrize("command", [("site",), ("speedrun", "site")])
def test_a_folder_of_others_is_not_written_into(
    marin: Marin, root: Path, tmp_path: Path, command: tuple[str, ...]
) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "index.html").write_text("mine")
    refused = marin(*command, str(tmp_path / "mine"))
    assert refused.status == 2 and "no site was written there" in refused.err
    assert [path.name for path in (tmp_path / "mine").rglob("*")] == ["index.html"]
    assert (tmp_path / "mine" / "index.html").read_text() == "mine"
    (tmp_path / "mine" / "site.json").write_text("{")
    assert marin(*command, str(tmp_path / "mine")).status == 0, "a state that cannot be read only costs work"


def test_whoever_was_killed_after_the_first_page_may_go_on(
    marin: Marin, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record(open_root(), "one", Recipe(seed=3), 3.25)
    with monkeypatch.context() as until, pytest.raises(KeyboardInterrupt):
        until.setattr("marin.plugins.sharing.pages.site.render", Mock(side_effect=KeyboardInterrupt))
        write_site(open_root(), tmp_path / "site")
    assert list((tmp_path / "site").rglob("*.html"))
    assert marin("site", str(tmp_path / "site")).status == 0
