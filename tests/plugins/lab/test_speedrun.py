"""`marin speedrun`: who enters a track and who does not, its order, and its pages."""

from __future__ import annotations

import base64
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from ledger import Draft, LogReader, digest_bytes
from marin.history.runs import stream_of
from marin.kinds.families.experiment import EXPERIMENT_REGISTERED
from marin.plugins.lab.kinds import SPEEDRUN_ENTERED
from marin.plugins.lab.leaderboard import best_over_cost
from marin.plugins.lab.speedrun import entries, ranked, tracks
from marin.preregistration.arms import registrations
from marin.recipe.cost import work_of
from marin.recipe.schema import (
    Artifact,
    Evaluation,
    FilesDataset,
    GrammarDataset,
    Initial,
    Lora,
    Model,
    Optimizer,
    Recipe,
    Tokenizer,
    Tokens,
    Trainer,
    digest,
    recorded,
)
from marin.record import events
from marin.record.creation import create_root
from marin.record.root import Root, open_root
from marin.record.verdicts import NAMES

Marin = Any

BASE = Recipe(model=Model(seq_len=64), trainer=Trainer(num_steps=100, batch_size=8))
LIMIT = work_of("train", BASE).flops * 1.5
FILE = f'''"""How low does the loss go?"""
from marin.preregistration.registration import CostCap, Metric, Registration, Track
from marin.recipe.schema import Model, Recipe, Trainer

BASE = Recipe(model=Model(seq_len=64), trainer=Trainer(num_steps=100, batch_size=8))
experiment = Registration(
    name="exp9_lowest", question="How low does the loss go?", hypothesis="Below 3.", primary=Metric(name="evaluate.loss"),
    arms={{"base": BASE}}, baseline="base", seeds=(1,), test="welch", cost_cap=CostCap(seconds=100),
    track=Track(flops={LIMIT!r}))
'''
SOME = "sha256:" + "a" * 64
SMALL = Model(hidden_dim=64, seq_len=64)


def record(root: Root, run: str, recipe: Recipe, loss: float, *, whole: bool = True, corpus: str | None = None) -> None:
    """A run as the executor would record it; ``corpus``: the digest of its text, where it has that step."""
    output = events.Output(kind="evaluation", digest=SOME, size=1, artifact=SOME)
    text = (
        []
        if corpus is None
        else [
            events.StepCompleted(
                run=run,
                step="corpus",
                identity=corpus,
                inputs={},
                seconds=1.0,
                metrics={},
                output=events.Output(kind="corpus", digest=corpus, size=1, artifact=corpus),
            )
        ]
    )
    bodies: list[tuple[str, events.Body]] = [
        (
            events.RUN_STARTED,
            events.RunStarted(
                run=run,
                pipeline="default",
                plan=SOME,
                recipe_digest=digest(recipe),
                recipe=recorded(recipe),
                code={},
                environment={},
                experiment="",
            ),
        ),
        *((events.STEP_COMPLETED, body) for body in text),
        (
            events.STEP_COMPLETED,
            events.StepCompleted(
                run=run,
                step="evaluate",
                identity=SOME,
                inputs={},
                seconds=2.0,
                metrics={"loss": loss.hex()},
                output=output,
            ),
        ),
    ]
    if whole:
        bodies.append((events.RUN_COMPLETED, events.RunCompleted(run=run, outputs={"evaluate": output}, metrics={})))
    root.append([Draft(kind, stream_of(run), events.write(body)) for kind, body in bodies])


def verify(
    run: str, of: LogReader, by: Root, *, mode: str = "full", hours: float | None = None, taken: int = 0, **words: str
) -> None:
    """A verdict as `marin verify` records it, on the log ``of`` as it is; ``hours`` by two workers, ``taken`` segments of
    eight from an earlier one."""
    checkpoint = of.refresh()
    body = events.ReplayCompleted(
        run=run,
        verdicts={**dict.fromkeys(NAMES, "PASS"), **words},
        training={"mode": mode}
        if hours is None
        else {"mode": mode, "segments_total": 8, "segments_replayed": 8 - taken, "workers": 2, "seconds": hours * 1800},
        first_divergence=None,
        log_checkpoint={"origin": checkpoint.origin, "size": checkpoint.size, "root": checkpoint.root.hex()},
        details={},
        environment={},
    )
    by.append([Draft(events.REPLAY_COMPLETED, stream_of(run), events.write(body))])


@pytest.fixture
def own(root: Path, marin: Marin) -> Root:
    """The keeper's root, with a track."""
    Path("exp9_lowest.py").write_text(FILE)
    assert marin("experiment", "register", "exp9_lowest.py").status == 0
    return open_root()


@pytest.fixture
def theirs(own: Root, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Root, str]:
    """A stranger's root, signed by a key that is gone from here; and the verifier key that its owner publishes."""
    monkeypatch.setenv("MARIN_KEY", str(tmp_path / "stranger.key"))
    made = create_root(str(tmp_path / "theirs"), origin="stranger.example/log")
    record(made, "far", replace(BASE, seed=5, model=SMALL), 2.5)
    verify("far", made.reader(), made)  # the reproducer's word, in its own log
    monkeypatch.delenv("MARIN_KEY")
    return open_root(str(tmp_path / "theirs")), str(made.verifier)


def test_only_what_was_replayed_whole_enters(marin: Marin, own: Root) -> None:
    record(own, "mine", replace(BASE, seed=1), 3.5)
    submit = ("speedrun", "submit", "mine", "--track", "exp9", "--json")
    refused = marin(*submit)
    assert refused.status == 3 and "was not replayed whole" in refused.err and "verify mine" in refused.err
    verify("mine", own.reader(), own, mode="sampled")
    assert marin(*submit).status == 3
    verify("mine", own.reader(), own, training="FAIL")
    assert marin(*submit).status == 3
    verify("mine", own.reader(), own)
    entered = marin(*submit).json
    assert float.fromhex(entered["score"]) == 3.5 and entered["flops"] == work_of("train", BASE).flops
    assert marin(*submit).json["event"] is None, "the same run is not entered twice"
    assert len(marin("speedrun", "list", "exp9", "--json").json) == 1


def test_a_fail_after_a_pass_keeps_a_run_out(
    marin: Marin, own: Root, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record(own, "mine", replace(BASE, seed=1), 3.5)
    verify("mine", own.reader(), own)
    verify("mine", own.reader(), own, training="FAIL")
    submit = ("speedrun", "submit", "mine", "--track", "exp9", "--json")
    refused = marin(*submit)
    assert refused.status == 3 and "found FAIL, event 5 of your log" in " ".join(refused.err.split())
    monkeypatch.setenv("MARIN_KEY", str(tmp_path / "one.key"))
    root = create_root(str(tmp_path / "one"), origin="one.example/log")
    verify("mine", own.reader(), root)
    monkeypatch.delenv("MARIN_KEY")
    others = ("--reproducer", f"{root.absolute}={root.verifier}", "--quorum", "1")
    assert marin(*submit, *others).status == 3, "who found a difference does not admit it on others' word"
    verify("mine", own.reader(), own)
    assert marin(*submit, *others).status == marin(*submit).status == 0


def test_a_run_that_fails_after_its_entry_has_no_place(marin: Marin, own: Root, tmp_path: Path) -> None:
    for run, seed, loss in (("good", 1, 3.5), ("bad", 2, 1.5)):
        record(own, run, replace(BASE, seed=seed), loss)
        verify(run, own.reader(), own)
        assert marin("speedrun", "submit", run, "--track", "exp9").status == 0
    verify("bad", own.reader(), own, training="FAIL")
    listed = marin("speedrun", "list", "exp9", "--json")
    assert [row["run"] for row in listed.json] == [
        "good"
    ] and "run bad of marin.test/cli, which failed since" in listed.err
    assert marin("speedrun", "list", "--json").json[0]["best"] == 3.5
    assert marin("speedrun", "site", str(tmp_path / "site")).status == 0
    page = read(tmp_path / "site" / "speedruns" / "exp9_lowest.html")
    assert "No longer there" in page.words and page.ids & {"good", "bad"} == {"good"}
    verify("bad", own.reader(), own, training="PARTIAL", data="NOT_RUN")
    assert len(marin("speedrun", "list", "exp9", "--json").json) == 1, "who looks at less takes nothing back"
    verify("bad", own.reader(), own)
    assert [row["run"] for row in marin("speedrun", "list", "exp9", "--json").json] == ["bad", "good"]


@pytest.mark.parametrize(
    "document",
    [
        b"[]",
        b"null",
        b"\xff",
        b'{"track": {"flops": 1.0}}',
        b'{"track": 5, "arms": {}}',
        b'{"track": {"flops": 1}, "arms": {}}',
        b'{"track": {"flops": 1e999}, "arms": {}}',
        b"[" * 100_000,
        b'{"track": {"flops": 1}, "arms": {"base": {"seed": "x"}}}',
    ],
    ids=range(9),
)
def test_a_registration_that_cannot_be_read_hides_no_other_track(
    marin: Marin, own: Root, tmp_path: Path, document: bytes
) -> None:
    own.store().put_bytes(document)
    (fact,) = registrations(own.history())
    body = msgspec.structs.replace(fact.body, experiment="exp8", registration=digest_bytes(document))
    own.append([Draft(EXPERIMENT_REGISTERED, "experiment/exp8", events.write(body))])
    listed = marin("speedrun", "list", "--json")
    assert listed.status == 0 and [row["track"] for row in listed.json] == ["exp9_lowest"]
    assert "a track is left out: " in listed.err
    assert (
        marin("speedrun", "list", "exp8").status in (1, 2)
        and marin("speedrun", "site", str(tmp_path / "site")).status == 0
    )


@pytest.mark.parametrize("score", ["nan", "inf"])
def test_an_entry_without_a_number_is_none(marin: Marin, own: Root, tmp_path: Path, score: str) -> None:
    record(own, "mine", replace(BASE, seed=1), 3.5)
    verify("mine", own.reader(), own)
    assert marin("speedrun", "submit", "mine", "--track", "exp9").status == 0
    (fact,) = entries(own.history(), "exp9_lowest")
    own.append([Draft(SPEEDRUN_ENTERED, "speedrun/exp9_lowest", events.write(fact.body) | {"score": score})])
    assert len(marin("speedrun", "list", "exp9", "--json").json) == 1
    assert marin("speedrun", "site", str(tmp_path / "site")).status == 0


def test_a_training_loss_is_one_a_token_too(marin: Marin, own: Root) -> None:
    text = FILE.replace("exp9_lowest", "exp10_train").replace("evaluate.loss", "train.loss_last")
    Path("exp10_train.py").write_text(text)
    assert marin("experiment", "register", "exp10_train.py").status == 0
    record(own, "mine", replace(BASE, seed=1, tokenizer=Tokenizer(vocab_size=300)), 1.0)
    verify("mine", own.reader(), own)
    refused = marin("speedrun", "submit", "mine", "--track", "exp10")
    assert refused.status == 2 and "tokenizer is the baseline's" in refused.err


def test_a_run_that_went_on_after_its_verdict_does_not_enter(marin: Marin, own: Root) -> None:
    record(own, "mine", replace(BASE, seed=1), 3.5, whole=False)
    verify("mine", own.reader(), own)
    record(own, "mine", replace(BASE, seed=1), 1.5)
    assert marin("speedrun", "submit", "mine", "--track", "exp9").status in (1, 3)
    assert marin("speedrun", "list", "exp9", "--json").json == []


@pytest.mark.parametrize(
    ("changed", "rule"),
    [
        ({"dataset": GrammarDataset(train_bytes=10_000)}, "dataset is the baseline's"),
        ({"evaluation": Evaluation(max_sequences=1)}, "evaluation is the baseline's"),
        ({"tokenizer": Tokenizer(vocab_size=300)}, "tokenizer is the baseline's"),
        ({"tokenizer": Tokenizer(artifact=SOME)}, "tokenizer.artifact is the baseline's"),
        ({"tokens": Tokens(artifact=Artifact(address="a", digest=SOME))}, "tokens.artifact is the baseline's"),
        ({"tokens": Tokens(append_eos=False)}, "tokens is the baseline's"),
        ({"model": Model(seq_len=32)}, "model.seq_len is the baseline's"),
        ({"exclude": ("page",)}, "exclude is the baseline's"),
        ({"initial": Initial(name="trained before", model=SOME, tokenizer=SOME)}, "initial is the baseline's"),
        ({"lora": Lora()}, "lora is the baseline's"),
        ({"trainer": Trainer(num_steps=200, batch_size=8)}, "flops at most"),
    ],
)
def test_a_rule_that_is_broken_is_named(marin: Marin, own: Root, changed: dict[str, Any], rule: str) -> None:
    record(own, "mine", replace(BASE, seed=1, **changed), 1.0)
    verify("mine", own.reader(), own)
    refused = marin("speedrun", "submit", "mine", "--track", "exp9_lowest")
    assert refused.status == 2 and rule in refused.err


def test_files_are_those_of_the_keepers_baseline(marin: Marin, own: Root) -> None:
    base = replace(BASE, dataset=FilesDataset(globs=("text/*.txt",)))
    words = {
        "exp9_lowest": "exp11_files",
        "import Model": "import FilesDataset, Model",
        "BASE = Recipe(": 'BASE = Recipe(dataset=FilesDataset(globs=("text/*.txt",)), ',
    }
    text = FILE
    for old, new in words.items():
        text = text.replace(old, new)
    Path("exp11_files.py").write_text(text)
    assert marin("experiment", "register", "exp11_files.py").status == 0
    other = "sha256:" + "b" * 64
    for run, seed, corpus in (("same", 5, SOME), ("easier", 6, other)):
        record(own, run, replace(base, seed=seed, model=SMALL), 2.5, corpus=corpus)
        verify(run, own.reader(), own)
    submit = ("speedrun", "submit", "same", "--track", "exp11")
    assert marin(*submit).status == 3, "nobody here says which files"
    record(own, "base", replace(base, seed=1), 3.5, corpus=SOME)
    verify("same", own.reader(), own)
    assert marin(*submit).status == 0
    refused = marin("speedrun", "submit", "easier", "--track", "exp11")
    assert refused.status == 2 and "its text is the baseline's" in refused.err


def test_a_strangers_own_verdict_counts_for_nothing(marin: Marin, own: Root, theirs: tuple[Root, str]) -> None:
    of, key = theirs
    submit = ("speedrun", "submit", "far", "--track", "exp9", "--of", of.absolute, "--vkey", key, "--json")
    assert marin(*submit).status == 3
    verify("far", of.reader(), own)
    entered = marin(*submit)
    assert entered.status == 0, entered.err
    assert entered.json["origin"] == "stranger.example/log" and entered.json["keys"] == [key]


def test_a_verdict_on_another_log_with_the_same_names_counts_for_nothing(
    marin: Marin, own: Root, theirs: tuple[Root, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    of, key = theirs
    with monkeypatch.context() as elsewhere:  # on a machine that knows nothing of the first
        elsewhere.setenv("XDG_STATE_HOME", str(tmp_path / "elsewhere"))
        elsewhere.setenv("MARIN_KEY", str(tmp_path / "stranger.key"))
        twin = create_root(str(tmp_path / "twin"), origin="stranger.example/log")
        record(twin, "far", replace(BASE, seed=5), 3.9)
    verify("far", open_root(str(tmp_path / "twin")).reader(), own)
    submit = ("speedrun", "submit", "far", "--track", "exp9", "--of", of.absolute, "--vkey", key)
    assert marin(*submit).status == 3


def test_reproducers_whom_the_keeper_names(
    marin: Marin, own: Root, theirs: tuple[Root, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    of, key = theirs
    named = []
    for name, words in (("one", {}), ("two", {"model": "FAIL"}), ("three", {})):
        monkeypatch.setenv("MARIN_KEY", str(tmp_path / f"{name}.key"))
        root = create_root(str(tmp_path / name), origin=f"{name}.example/log")
        verify("far", of.reader(), root, **words)
        named += ["--reproducer", f"{root.absolute}={root.verifier}"]
    monkeypatch.delenv("MARIN_KEY")
    submit = ("speedrun", "submit", "far", "--track", "exp9", "--of", of.absolute, "--vkey", key, "--json")
    assert marin(*submit, *named).status == 2, "reproducers without a quorum"
    assert marin(*submit, *named, "--quorum", "3").status == 3
    assert marin(*submit, *named[:2], *named[:2], "--quorum", "2").status == 3, "one who is named twice is one"
    entered = marin(*submit, *named, "--quorum", "2").json
    assert [item["key"].split(".")[0] for item in entered["replayed"]] == ["one", "three"]


def timed(marin: Marin, own: Root) -> tuple[str, ...]:
    """A track that allows two hours, and a run for it; the words that submit it."""
    text = FILE.replace("exp9_lowest", "exp10_hours").replace(f"flops={LIMIT!r}", "hours=2.0")
    Path("exp10_hours.py").write_text(text)
    assert marin("experiment", "register", "exp10_hours.py").status == 0
    record(own, "mine", replace(BASE, seed=1), 3.5)
    return ("speedrun", "submit", "mine", "--track", "exp10", "--json")


def test_hours_are_those_of_who_replays(marin: Marin, own: Root) -> None:
    submit = timed(marin, own)
    verify("mine", own.reader(), own)
    refused = marin(*submit)
    assert refused.status == 2 and "hours at most" in refused.err and "--fresh" in refused.err, "nobody said how long"
    verify("mine", own.reader(), own, hours=0.5, taken=3)
    assert marin(*submit).status == 2, "half of it was taken over"
    verify("mine", own.reader(), own, hours=3.0)
    refused = marin(*submit)
    assert refused.status == 2 and "expected 2 to replay" in " ".join(refused.err.split())
    verify("mine", own.reader(), own, hours=1.5)
    assert marin(*submit).json["hours"] == 1.5
    assert marin("speedrun", "list", "--json").json[-1]["hours"] == 2.0


def test_of_reproducers_so_many_must_be_within_the_hours(
    marin: Marin, own: Root, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit, named = timed(marin, own), []
    for name, hours in (("slow", 5.0), ("quick", 1.0), ("fair", 1.75)):
        monkeypatch.setenv("MARIN_KEY", str(tmp_path / f"{name}.key"))
        root = create_root(str(tmp_path / name), origin=f"{name}.example/log")
        verify("mine", own.reader(), root, hours=hours)
        named += ["--reproducer", f"{root.absolute}={root.verifier}"]
    monkeypatch.delenv("MARIN_KEY")
    assert marin(*submit, *named, "--quorum", "3").status == 2
    assert marin(*submit, *named, "--quorum", "2").json["hours"] == 1.75


def test_the_curve_is_over_what_the_track_limits(marin: Marin, own: Root, tmp_path: Path) -> None:
    """The wide one needs more FLOPs and fewer hours than the small one, and is as good: on a track of hours it is before it."""
    text = FILE.replace("exp9_lowest", "exp10_both").replace(f"flops={LIMIT!r}", "hours=2.0, parameters=10_000_000")
    Path("exp10_both.py").write_text(text)
    assert marin("experiment", "register", "exp10_both.py").status == 0
    for run, recipe, hours in (
        ("small", replace(BASE, seed=2, model=SMALL), 1.5),
        ("wide", replace(BASE, seed=1), 0.5),
    ):
        record(own, run, recipe, 3.5)
        verify(run, own.reader(), own, hours=hours)
        assert marin("speedrun", "submit", run, "--track", "exp10").status == 0
    (rules,) = [rules for rules in tracks(own.history(), own.store()) if rules.name == "exp10_both"]
    found = ranked(rules, entries(own.history(), rules.name))
    parameters = {fact.body.run: float(fact.body.parameters) for fact in found}
    assert rules.costs == ("parameters", "hours")
    assert best_over_cost(rules, found, "hours") == [(0.5, 3.5)]
    assert best_over_cost(rules, found, "parameters") == [(parameters["small"], 3.5)]
    assert [fact.body.run for fact in found] == ["small", "wide"], "of equals the one with fewer parameters"
    assert marin("speedrun", "site", str(tmp_path / "site")).status == 0
    page = (tmp_path / "site" / "speedruns" / "exp10_both.html").read_text()
    drawn = [base64.b64decode(one).decode() for one in re.findall(r'src="data:image/svg\+xml;base64,([^"]+)"', page)]
    for axis, picture in zip(("parameters", "hours to replay its training"), drawn, strict=True):
        assert f"{axis}</text>" in picture, "the axis says what it is"
        assert f'alt="best evaluate.loss over {axis}: 3.5 at ' in page


def test_names_of_a_foreign_log_lead_nowhere(marin: Marin, own: Root, tmp_path: Path) -> None:
    """Anyone who draws somebody else's tracks writes below the folder that was named, and nowhere else."""
    (fact,) = registrations(own.history())
    for name in ("../../escaped", str(tmp_path / "absolute"), "..", "a/b", "a\nb", "<b>"):
        body = events.write(msgspec.structs.replace(fact.body, experiment=name))
        own.append([Draft(EXPERIMENT_REGISTERED, "experiment/exp9_lowest", body)])
    before = {*tmp_path.rglob("*.html")}
    for words in (("speedrun", "site", "deep/pages"), ("site", "deep/whole")):
        assert marin(*words).status == 0
    written = {path.relative_to(Path("deep").resolve()).as_posix() for path in {*tmp_path.rglob("*.html")} - before}
    assert written == {
        "pages/speedruns/exp9_lowest.html",
        "pages/speedruns/index.html",
        "whole/check.html",
        "whole/index.html",
        "whole/experiments/exp9_lowest.html",
        "whole/speedruns/exp9_lowest.html",
        "whole/speedruns/index.html",
    }


class Read(HTMLParser):
    """Text, links and anchors of a page; whether anything would run or be loaded."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.links, self.ids, self.loaded = "", set[str](), set[str](), list[str]()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.links |= {given["href"] or ""} if "href" in given else set()
        self.ids |= {given["id"] or ""} if "id" in given else set()
        if tag in ("script", "link", "iframe") or not (given.get("src") or "data:").startswith("data:"):
            self.loaded.append(tag)

    def handle_data(self, data: str) -> None:
        self.words += data


def read(page: Path) -> Read:
    found = Read()
    found.feed(page.read_text())
    return found


def test_the_site_is_whole_without_scripts(marin: Marin, own: Root, tmp_path: Path) -> None:
    for run, recipe, loss in (
        ("slow", replace(BASE, seed=1), 3.5),
        ("wide", replace(BASE, seed=1, optimizer=Optimizer(learning_rate=0.01)), 3.25),
        ("cheap", replace(BASE, seed=2, model=SMALL), 3.75),
    ):
        record(own, run, recipe, loss)
        verify(run, own.reader(), own)
        assert marin("speedrun", "submit", run, "--track", "exp9").status == 0
    assert [row["run"] for row in marin("speedrun", "list", "exp9", "--json").json] == ["wide", "slow", "cheap"]
    (listed,) = marin("speedrun", "list", "--json").json
    assert (listed["entries"], listed["best"]) == (3, 3.25)
    written = marin("speedrun", "site", str(tmp_path / "site"))
    site = tmp_path / "site" / "speedruns"
    assert written.status == 0 and written.out == f"{site}/index.html\n"
    index, track = read(site / "index.html"), read(site / "exp9_lowest.html")
    assert index.links == {"exp9_lowest.html"} and index.loaded == track.loaded == []
    assert {f"#{run}" for run in ("wide", "slow", "cheap")} <= track.links and {"wide", "slow", "cheap"} <= track.ids
    assert "optimizer.learning_rate" in track.words and "0.01" in track.words, "what the best changed"
    assert f"marin --root ROOT verify wide --vkey {own.verifier}" in track.words
    before = (site / "exp9_lowest.html").read_bytes()
    assert marin("speedrun", "site", str(site.parent)).status == 0
    assert (site / "exp9_lowest.html").read_bytes() == before


def test_an_experiment_that_is_no_track_is_refused(marin: Marin, own: Root) -> None:
    plain = FILE.replace("exp9_lowest", "exp9_plain").partition("    track=")[0] + ")\n"
    two = plain.replace('{"base": BASE}', '{"base": BASE, "small": Recipe(model=Model(hidden_dim=64))}')
    Path("exp9_plain.py").write_text(two)
    assert marin("experiment", "register", "exp9_plain.py").status == 0
    refused = marin("speedrun", "submit", "x", "--track", "exp9_plain")
    assert refused.status == 2 and "is no track" in refused.err
    assert "exp9_plain" not in marin("speedrun", "list").out


def test_a_track_by_the_name_of_the_page_of_all_tracks_is_refused(marin: Marin, own: Root) -> None:
    Path("index.py").write_text(FILE.replace("exp9_lowest", "index"))
    refused = marin("experiment", "register", "index.py")
    assert refused.status == 2 and "the page of all tracks" in refused.err, refused.err


def test_a_track_that_limits_nothing_is_refused(marin: Marin, root: Path) -> None:
    Path("exp9_lowest.py").write_text(FILE.replace(f"flops={LIMIT!r}", ""))
    refused = marin("experiment", "register", "exp9_lowest.py")
    assert refused.status == 2 and "a track that limits nothing" in refused.err, refused.err
