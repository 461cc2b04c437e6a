"""`marin compare`: a sweep of rates and seeds read from one command, and what its numbers are worth."""

from __future__ import annotations

import math
import os
import re
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import marin as library
from ledger import Draft
from marin.history.runs import evaluation_stream, stream_of, stream_of_graph
from marin.history.table.varied import key_differences
from marin.kinds.families.graph import GRAPH_STARTED, GraphStarted
from marin.kinds.families.measured import EVALUATION_RECORDED, EvaluatedTask, EvaluationRecorded
from marin.plugins.lab.comparing.importance import share
from marin.plugins.lab.comparing.text import with_spread
from marin.record import events
from marin.record.root import open_root

Marin = Any
RATES, SEEDS = (0.003, 0.006, 0.02), (1, 2)
LOSSES = {0.003: (3.5, 3.4), 0.006: (3.2, 3.05), 0.02: (3.3, 3.25)}


def digest(text: str) -> str:
    return "sha256:" + text.encode().hex().ljust(64, "0")[:64]


def name_of(rate: float, seed: int | None) -> str:
    return f"r{str(rate)[2:]}s{seed}"


def recipe(rate: float, seed: int | None) -> dict[str, Any]:
    return {
        "dataset": {"name": "grammar"},
        "trainer": {"num_steps": 4},
        "model": {"architecture": "llama", "num_layers": 2, "hidden_dim": 32},
        "optimizer": {"learning_rate": rate.hex()},
    } | ({} if seed is None else {"seed": seed})


def record(
    rate: float, seed: int | None, loss: float | None, *, tokenizer: str = "t", run: str = "", code: str = "c"
) -> tuple[str, str]:
    """A run as the executor would record it: its name, and the digest of its recipe."""
    run = run or name_of(rate, seed)

    def made(step: str, content: str, **metrics: float) -> Draft:
        body = events.StepCompleted(
            run=run,
            step=step,
            identity=digest("i"),
            inputs={},
            output=events.Output(kind=step, digest=digest(content), size=1, artifact=digest(content)),
            seconds=2.0,
            metrics={key: value.hex() for key, value in metrics.items()},
        )
        return Draft(events.STEP_COMPLETED, stream_of(run), events.write(body))

    begun = events.RunStarted(
        run=run,
        pipeline="default",
        plan=digest("p"),
        recipe_digest=digest(f"{rate}{seed}"),
        recipe=recipe(rate, seed),
        code={"steps": {"train": digest(code)}},
        environment={},
    )
    drafts = [Draft(events.RUN_STARTED, stream_of(run), events.write(begun)), made("corpus", "corpus")]
    drafts.append(made("tokenizer", tokenizer))
    if loss is not None:
        segment = events.TrainSegment(
            run=run,
            start=0,
            end=3,
            losses=[value.hex() for value in (8.0, 5.0, loss + 0.25)],
            batches=["b"] * 3,
            fingerprints=["f"] * 3,
            start_state=digest("0"),
            end_state=digest("1"),
            trace=digest("7"),
        )
        drafts.append(Draft(events.TRAIN_SEGMENT, stream_of(run), events.write(segment)))
        drafts.append(made("train", f"s{rate}{seed}", loss_last=loss + 0.25, tokens=96.0))
        drafts.append(made("evaluate", f"e{rate}{seed}", loss=loss, perplexity=math.exp(loss)))
    open_root().append(drafts)
    return run, digest(f"{rate}{seed}")


@pytest.fixture
def sweep(root: Path) -> str:
    """Three rates, two seeds, and what `marin train -m` records of them all."""
    recipes = [digest(f"{rate}{seed}") for rate in RATES for seed in SEEDS]
    begun = GraphStarted(
        graph="sweepabc",
        name="default",
        file="",
        declaration=digest("d"),
        steps=18,
        ends=[],
        options={"recipes": recipes},
        code={},
        environment={},
    )
    open_root().append([Draft(GRAPH_STARTED, stream_of_graph("sweepabc"), events.write(begun))])
    for rate in RATES:
        for seed, loss in zip(SEEDS, LOSSES[rate], strict=True):
            record(rate, seed, loss)
    return "sweepabc"


def test_a_sweep_is_read_from_one_command(marin: Marin, sweep: str) -> None:
    lines = marin("compare", "--sweep", sweep).out.splitlines()
    assert lines[0] == "sweep sweepabc: 6 runs, 3 of optimizer.learning_rate, 2 seeds"
    at = lines.index(next(line for line in lines if line.startswith("learning_rate")))
    assert re.split(r"  +", lines[at]) == ["learning_rate", "seeds", "loss", "train loss", "train loss by step"]
    assert [re.split(r"  +", line)[:4] for line in lines[at + 1 : at + 4]] == [
        ["0.003", "1, 2", "3.4500 ± 0.071", "3.7000 ± 0.071"],
        ["0.006", "1, 2", "3.125 ± 0.11", "3.375 ± 0.11"],
        ["0.02", "1, 2", "3.2750 ± 0.035", "3.5250 ± 0.035"],
    ]
    told = "\n".join(lines)
    assert (
        "loss is least at learning_rate=0.006: 3.125 ± 0.11; greatest at learning_rate=0.003: 3.4500 ± 0.071" in lines
    )
    assert "against learning_rate=0.003, exploratory: nothing of this was registered before the runs" in told
    assert re.search(r"loss +learning_rate=0\.006 +-0\.325 ", told)
    assert "note: 2 pairs of seeds can give no p below 0.5, however great the difference" in told
    assert re.search(r"optimizer\.learning_rate +\d\d%", told)


def test_json_has_every_number_and_the_test_that_the_registered_ones_have(marin: Marin, sweep: str) -> None:
    found = marin("compare", "--sweep", "latest", "--baseline", "learning_rate=6e-3", "--json").json
    assert found["varied"] == ["optimizer.learning_rate", "seed"] and found["baseline"] == "learning_rate=0.006"
    assert [len(group["runs"]) for group in found["groups"]] == [2, 2, 2]
    assert {row["run"]: row["evaluate.loss"] for row in found["runs"]}["r006s2"] == 3.05
    worse = next(one for one in found["differences"] if one["arm"] == "learning_rate=0.003")
    assert worse["exploratory"] and worse["pairs"] == 2 and worse["p"] == 0.5
    assert worse["difference"] == pytest.approx(0.325) and worse["interval"][0] <= 0.325 <= worse["interval"][1]


def test_what_the_numbers_are_worth_is_said_where_no_difference_is_shown(marin: Marin, root: Path) -> None:
    """Of more than eight groups of one run each nothing can be tested, and no title of a table says so."""
    for number in range(1, 10):
        record(number / 1000, 1, 3.0 + number / 10)
    lines = marin("compare", "--filter", "learning_rate < 1").out.splitlines()
    assert not any(line.startswith("against ") for line in lines)
    assert "exploratory: nothing of this was registered before the runs" in lines


def test_runs_without_a_seed_are_no_pairs(marin: Marin, root: Path) -> None:
    """Loops of one's own may name none, and the first of one group has nothing to do with the first of another."""
    for rate, losses in ((0.003, (3.5, 3.4, 3.6, 3.2)), (0.02, (3.3, 3.35, 3.1, 3.2))):
        for number, loss in enumerate(losses):
            record(rate, None, loss, run=f"{name_of(rate, None)}{number}")
    record(0.003, -1, 3.3)
    found = marin("compare", "--filter", "learning_rate < 1", "--metric", "evaluate.loss", "--json").json
    (difference,) = found["differences"]
    assert (difference["test"], difference["pairs"]) == ("Welch's t", 0)
    assert [difference[name]["n"] for name in ("of_baseline", "of_arm")] == [5, 4]


def test_what_cannot_be_compared_is_said_beside_its_number(marin: Marin, sweep: str) -> None:
    record(0.1, 1, 2.0, tokenizer="other", code="changed")
    lines = marin("compare", name_of(0.003, 1), name_of(0.1, 1)).out.splitlines()
    (row,) = [line for line in lines if line.startswith("0.1 ")]
    assert "2 (other tokenizer, other code)" in row
    shown = marin("diff", name_of(0.003, 1), name_of(0.1, 1)).out.splitlines()
    assert next(line for line in shown if line.startswith("evaluate.loss")).endswith(
        "-1.5, other tokenizer, other code"
    )
    told = marin("diff", name_of(0.003, 1), name_of(0.1, 1), "--json").json
    assert told["not_comparable"]["evaluate.loss"] == ["other tokenizer", "other code"]


def evaluated(run: str, acc: float, *, data: str = "d", code: str = "c", **settings: Any) -> None:
    """What `marin eval` records: a task with one filter, and one with two."""
    numbers = {"acc,none": acc.hex(), "acc_stderr,none": (0.1).hex()}
    filtered = {"match,strict": (0.25).hex(), "match,loose": (0.5).hex()}
    task = EvaluatedTask(config=digest("config"), data={"test": digest(data)}, prompts=digest("p"), documents=4)
    body = EvaluationRecorded(
        run=run,
        step=4,
        state=digest("1"),
        tokenizer=digest("t"),
        identity=digest(f"{run}{acc}{data}"),
        harness="0.4.13",
        code=digest(code),
        lock="",
        settings=settings,
        tasks={"quiz": task, "sums": replace(task, data={})},
        results={"quiz": numbers, "sums": filtered},
        samples=digest("s"),
        requests=4,
        truncated=0,
    )
    open_root().append([Draft(EVALUATION_RECORDED, evaluation_stream(run), events.write(body))])


@pytest.mark.parametrize(
    ("changed", "beside"),
    [
        ({}, []),
        ({"data": "other"}, ["other questions"]),
        ({"limit": 4}, ["measured otherwise"]),
        ({"code": "changed"}, ["other code"]),
    ],
)
def test_what_was_evaluated_later_is_compared_by_its_short_name_and_not_with_other_questions(
    marin: Marin, sweep: str, changed: dict[str, Any], beside: list[str]
) -> None:
    evaluated("r003s1", 0.5)
    evaluated("r006s1", 0.75, **changed)
    given = marin("compare", "r003s1", "r006s1", "--metric", "quiz.acc", "--metric", "sums.match.strict", "--json").json
    assert given["metrics"] == ["quiz.acc", "sums.match.strict"]
    (difference, _) = given["differences"]
    assert difference["difference"] == 0.25 and difference["not_comparable"] == beside
    assert given["groups"][1]["numbers"]["quiz.acc"]["not_comparable"] == beside
    rows = marin("ls", "--columns", "run,quiz.acc", "--filter", "quiz.acc > 0.6").out.splitlines()
    assert rows[1:] == ["r006s1  0.7500"], "the comma of the harness's filter would part the columns"


def test_a_loop_of_ones_own_beside_recipes_leaves_the_table_narrow(marin: Marin, sweep: str) -> None:
    """What it lacks of a recipe is told by one key; the others are held against a run that has the number."""
    begun = events.RunStarted(
        run="a1oop234",
        pipeline="loop",
        plan=digest("p"),
        recipe_digest=digest("loop"),
        recipe={"loop": {"name": "least squares", "command": "python train.py"}, "lr": 0.1, "seed": 1},
        code={},
        environment={},
    )
    open_root().append([Draft(events.RUN_STARTED, stream_of("a1oop234"), events.write(begun))])
    found = marin("compare", "--filter", "seed = 1", "--json").json
    assert found["varied"] == ["model", "optimizer.learning_rate"]
    assert {"loop.command", "lr"} <= set(found["follows"])
    assert found["baseline"] == "model=llama-2x32 learning_rate=0.003" and len(found["groups"]) == 4


def test_a_run_twice_and_one_without_a_result_are_named(marin: Marin, sweep: str) -> None:
    record(0.003, 1, 3.9, run="again123")
    record(0.006, 3, None)
    found = marin("compare", "--filter", "learning_rate <= 0.006", "--json").json
    assert "run again123 is run r003s1 again, with other numbers: the first counts" in found["notes"]
    assert "run r006s3 is open: no loss yet" in found["notes"]
    assert found["groups"][0]["numbers"]["evaluate.loss"]["n"] == 2


def test_a_sweep_under_way_says_how_many_are_missing(marin: Marin, root: Path, sweep: str) -> None:
    begun = GraphStarted(
        graph="zzz",
        name="default",
        file="",
        declaration=digest("d"),
        steps=3,
        ends=[],
        options={"recipes": [digest("0.0031"), digest("0.0061"), digest("none yet")]},
        code={},
        environment={},
    )
    open_root().append([Draft(GRAPH_STARTED, stream_of_graph("zzz"), events.write(begun))])
    assert "1 recipes of the sweep have no run yet" in marin("compare", "--sweep", "zzz", "--json").json["notes"]
    rows = marin("ls", "sweeps").out.splitlines()
    assert [re.split(r"  +", row)[2:] for row in rows[1:]] == [
        ["6 of 6", "optimizer.learning_rate, seed"],
        ["2 of 3", "optimizer.learning_rate"],
    ]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "which runs are to be compared?"),
        (("r003s1", "--sweep", "latest"), "which runs are to be compared?"),
        (("r003s1",), "there is nothing to compare"),
        (("--sweep", "sweepabx"), "did you mean sweepabc?"),
        (("--sweep", "latest", "--metric", "evaluate.los"), "did you mean evaluate.loss"),
        (("--sweep", "latest", "--baseline", "learning_rate=7"), "which runs are the baseline?"),
        (("--filter", "learning_rate > 7"), "there is nothing to compare"),
    ],
)
def test_what_cannot_be_compared_is_refused(marin: Marin, sweep: str, arguments: tuple[str, ...], said: str) -> None:
    refused = marin("compare", *arguments)
    assert refused.status == 2 and said in refused.err and refused.data == b""


def test_ls_has_what_differs_as_columns(marin: Marin, sweep: str) -> None:
    head, *rows = marin("ls").out.splitlines()
    assert " ".join(head.split()) == "run started dataset model steps learning_rate seed loss perplexity verified"
    assert [row.split()[-5:-2] for row in rows[:2]] == [["0.003", "1", "3.5000"], ["0.003", "2", "3.4000"]]
    best = marin("ls", "--sort", "loss", "-n", "1", "--columns", "run,optimizer.learning_rate,train loss")
    assert best.out.splitlines() == [
        "run     optimizer.learning_rate  train loss",
        "r006s2  0.006                    3.3000",
    ]
    assert [one["run"] for one in marin("ls", "--json", "--filter", "seed = 2 and loss < 3.3").json] == [
        "r006s2",
        "r02s2",
    ]
    assert marin("ls", "artifacts", "--filter", "loss < 3").status == 2
    timed = marin("ls", "--columns", "run,seconds", "--filter", "seconds > 3 and loss < 3.2", "--sort", "seconds")
    assert timed.out.splitlines()[1:] == ["r006s2  8"], "what compare knows of a run beside its steps"


def test_a_key_that_another_one_tells_has_no_column() -> None:
    """One run that asks for samples, or a loop of one's own, does not push what was swept out of the list."""
    known = key_differences(
        {
            "a": {"trainer": {"num_steps": 4}, "optimizer": {"learning_rate": 1, "beta": 2}},
            "b": {"trainer": {"num_steps": 4}, "optimizer": {"learning_rate": 2}},
            "c": {"trainer": {"num_steps": 9}, "optimizer": {"learning_rate": 2}, "evaluation": {"every": 3}},
        }
    )
    assert known.keys == ("evaluation.every", "optimizer.beta", "optimizer.learning_rate", "trainer.num_steps")
    assert known.repeated == {"evaluation.every", "optimizer.beta"}
    alone = key_differences({"a": {"clip": 1, "rate": 1}, "b": {"rate": 1}, "c": {"rate": 2}})
    assert alone.repeated == frozenset(), "the rate does not say who clips"


@pytest.mark.parametrize(
    ("mean", "sd", "shown"),
    [
        (988.488, 214.3, "988 ± 214"),
        (8.012768, 0.1187, "8.013 ± 0.12"),
        (2.91574, 0.00441, "2.91574 ± 0.0044"),
        (5e9, 3e8, "5e+09 ± 3e+08"),
        (3.45, None, "3.45"),
        (3.45, 0.0, "3.45 ± 0"),
    ],
)
def test_a_mean_has_the_digits_that_its_spread_lets_it_have(mean: float, sd: float | None, shown: str) -> None:
    assert with_spread(mean, sd) == shown


def test_the_library_has_frames_and_a_page(root: Path, sweep: str) -> None:
    found = library.open(str(root)).compare(sweep="latest")
    assert found.verdict == "exploratory" and found.varied == ["optimizer.learning_rate", "seed"]
    assert found.runs.loc["r02s1", "optimizer.learning_rate"] == 0.02
    assert found.groups.query("number == 'evaluate.loss'")["mean"].tolist() == pytest.approx([3.45, 3.125, 3.275])
    assert set(found.differences["number"]) == {"evaluate.loss", "train.loss_last"}
    page = found.page().html.decode()
    assert page.count("<img ") == 2 and "learning_rate=0.006" in page and "<script" not in page
    assert ">3.4500 ± 0.071</td>" in page, "and no escape of a space that does not break"
    assert found.page().html == page.encode(), "the same numbers give the same bytes"


def test_epsilon_squared_is_that_of_a_published_table() -> None:
    # Three groups of three; sums of squares by hand: between 54, within 6, so (54 - 2 * 1) / 60.
    assert share([*"aaabbbccc"], [1, 2, 3, 4, 5, 6, 7, 8, 9]) == pytest.approx(52 / 60)
    assert share([*"abcabcabc"], [1, 2, 3, 4, 5, 6, 7, 8, 9]) == 0.0
    assert share([*"abc"], [1, 2, 3]) is None


@pytest.mark.browser
def test_the_page_of_a_sweep_is_read_by_everybody(marin: Marin, sweep: str, chromium: Any, tmp_path: Path) -> None:
    """Curves, scatter and tables at two widths, light and dark; pictures have words for those who cannot see them."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    shots = Path(os.environ.get("MARIN_SCREENSHOTS", tmp_path))
    shots.mkdir(parents=True, exist_ok=True)
    assert marin("compare", "--sweep", sweep, "--html", tmp_path / "compared.html").status == 0
    page = chromium.new_page()
    for scheme, width in (("light", 1400), ("dark", 390)):
        page.emulate_media(color_scheme=scheme)
        page.set_viewport_size({"width": width, "height": 850})
        page.goto((tmp_path / "compared.html").as_uri())
        found = axe.run(page).response["violations"]
        assert [item["id"] for item in found if item["impact"] in ("serious", "critical")] == [], (scheme, width)
        assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), width
        sizes = page.locator("img").evaluate_all(
            "all => all.map(one => [one.naturalWidth > 0, one.clientWidth, one.alt])"
        )
        scales = page.locator("img").evaluate_all("all => all.map(one => one.clientWidth / one.naturalWidth)")
        assert min(scales) > 0.8, "a picture for this width: its words are as large as the page's"
        assert len(sizes) == 2 and all(drawn and shown <= width and said for drawn, shown, said in sizes)
        page.screenshot(path=shots / f"compared-{scheme}-{width}.png", full_page=True)
    page.close()
