"""BabyLM's own collation reads what `marin export --babylm` wrote, makes its file of it, and finds our scores.

The data is of the pipeline's shape and a few lines long, so the script is told how many lines there are; it is theirs else. What
they fine-tune (GLUE) is made up: it is no part of an export.
"""

import json
import math
import random
import shutil
import sys
from itertools import product
from pathlib import Path

import judges
import pytest
from programs import ask

MARIN = Path(sys.executable).with_name("marin")
GLUE = ("boolq", "mnli", "mrpc", "multirc", "qqp", "rte", "wsc")
NAMES = ("Ann", "Bo", "the dog", "a cat", "my friend")
EYES = ("RTfirstfix", "RTfirstpass", "RTgopast", "RTrightbound", "self_paced_reading_time")
NUMBERS = ("Subtlex_log10", "length", "context_length", "prev_length")
LINES, READ, WORDS = 6, 80, 3
TRAINED = (
    "model=nano",
    "model.hidden_dim=32",
    "model.intermediate_dim=64",
    "model.num_layers=1",
    "model.num_heads=2",
    "model.num_kv_heads=2",
    "tokenizer.vocab_size=300",
    "dataset.train_bytes=60000",
    "trainer.num_steps=4",
    "trainer.steps_per_segment=1",
)
EXPORT = """
from marin.history.runs import load, resolve
from marin.process.arithmetic import apply
from marin.recipe.schema import Execution
from marin.record.root import open_root
history = open_root().history()
apply(load(history, resolve(history, "latest")).recipe.arithmetic, Execution())
import marin.plugins.evaluation.babylm.submission
marin.plugins.evaluation.babylm.submission.MILLION = 2  # words: so few were read, and each checkpoint of the track is there
from marin.cli.main import main
main()
"""
COLLATE = """
import json, sys
from evaluation_pipeline import collate_preds as theirs
sizes = json.loads(sys.argv.pop(1))
theirs.FULL_SIZES, theirs.FAST_SIZES, theirs.AOA_SIZE = sizes["full"], sizes["fast"], sizes["aoa"]
theirs.main()
"""


def rows(draw):
    """By data set and file: lines as the pipeline's README has them."""
    pairs = [{"sentence_good": f"{name} is {n}", "sentence_bad": f"{name} are {n}"} for n, name in enumerate(NAMES)]
    pairs.append({"sentence_good": "she saw herself", "sentence_bad": "she saw himself"})
    world = [
        {
            "Context1": f"{name} helps.",
            "Context2": f"{name} hurts.",
            "Target1": f"Bo is glad {n}.",
            "Target2": f"Bo is sad {n}.",
            "Domain": "social-relations",
        }
        for n, name in enumerate((*NAMES, "it"))
    ]
    boxes = [
        {"input_prefix": f"Box {n} has", "options": [" a key", " a bell", " nothing"], "numops": n % 2}
        for n in range(2 * LINES)
    ]
    adjectives = [{"sentences": f"wug{n}ity\twug{n}ness", "ratio": str(round(draw.random(), 3))} for n in range(LINES)]
    past = [{"sentences": f"wug{n}ed\twug{n}t", "ratio": str(round(draw.random(), 3))} for n in range(LINES)]
    comps = [
        {"prefix_acceptable": name, "prefix_unacceptable": "A dax", "property_phrase": "can fly"}
        for name in (*NAMES, "it")
    ]
    shared = {"wug_adj_nominalization/wug_adj_nominalization": adjectives, "wug_past_tense/wug_past_tense": past}
    full = {
        "blimp_filtered/anaphor": pairs,
        "blimp_filtered/island": pairs[::-1],
        "supplement_filtered/hypernym": pairs,
        "ewok_filtered/social-relations": world,
        "entity_tracking/regular": boxes,
        "comps/comps_base": comps,
        "comps/comps_wugs": comps,
    }
    fast = {
        "blimp_fast/anaphor": pairs,
        "supplement_fast/hypernym": pairs,
        "ewok_fast/social-relations": world,
        "entity_tracking_fast/regular": boxes,
    }
    return {"full_eval": full | shared, "fast_eval": fast | shared}


SIZES = {
    "full": dict.fromkeys(("blimp_supplement", "wug_adj", "wug_past"), LINES)
    | dict.fromkeys(GLUE, WORDS)
    | {
        "blimp": {"anaphor": LINES, "island": LINES},
        "blimp_supplement": {"hypernym": LINES},
        "ewok": {"social-relations": LINES},
        "entity_tracking": {"regular_0_ops": LINES, "regular_1_ops": LINES},
        "comps": {"base": LINES, "wugs": LINES},
        "reading": READ,
    },
    "fast": dict.fromkeys(("blimp", "blimp_supplement", "ewok", "wug_adj", "wug_past"), LINES)
    | {"entity_tracking": {"regular_0_ops": LINES, "regular_1_ops": LINES}, "reading": READ},
    "aoa": WORDS,
}


def write_data(folder):
    draw = random.Random(7)
    for part, sets in rows(draw).items():
        for name, lines in sets.items():
            place = folder / part / f"{name}.jsonl"
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text("".join(json.dumps(line) + "\n" for line in lines))
        table = [",".join(("item", "word", "prev_item", "prev_word", *EYES, *NUMBERS))]
        for n, name in zip(range(READ), product(NAMES, range(READ)), strict=False):
            words = ("", "") if n == 0 else (name[0], f"w{n - 1}")
            numbers = [f"{draw.random() * 9:.4f}" for _ in (*EYES, *NUMBERS)]
            table.append(",".join((f"{name[0]} {n}", f"word{n % 13}", *words, *numbers)))
        (folder / part / "reading").mkdir()
        (folder / part / "reading" / "reading_data.csv").write_text("\n".join(table) + "\n")
    words = {"dog": [{"context": "The "}, {"context": "a "}], "cat": [{"context": "one "}]}
    (folder / "full_eval" / "cdi_childes").mkdir()
    (folder / "full_eval" / "cdi_childes" / "cdi_childes.json").write_text(json.dumps(words))


@pytest.fixture(scope="module")
def submission(tmp_path_factory):
    """The folder of a submission, and what our collation says; made-up predictions of GLUE lie beside it."""
    folder = tmp_path_factory.mktemp("babylm")
    write_data(folder / "evaluation_data")
    environment = {
        "MARIN_ROOT": str(folder / "root"),
        "MARIN_KEY": str(folder / "key"),
        "XDG_STATE_HOME": str(folder / "s"),
    }
    export = (sys.executable, "-c", EXPORT, "export", "latest", "--babylm", "out", "--babylm-data", "evaluation_data")
    for command in ((MARIN, "init", "--here"), (MARIN, "train", *TRAINED), (*export, "--track", "strict-small")):
        status, said = ask(*command, env=environment, cwd=folder, seconds=600)
        assert status == 0, said[-3000:]
    results = folder / "out" / "results" / "model"
    ours = json.loads((results / "all_full_preds_and_fast_scores_causal.json").read_text())
    for name in GLUE:
        place = results / "main" / "finetune" / name / "predictions.json"
        place.parent.mkdir(parents=True)
        place.write_text(json.dumps({name: {"predictions": [{"id": n, "pred": 1} for n in range(WORDS)]}}))
    return folder, ours


def collated(folder):
    room = judges.room("babylm")
    (source,) = room.glob("babylm-eval/strict")
    environment = {"PYTHONPATH": str(source), "PYTHONDONTWRITEBYTECODE": "1"}
    return ask(
        room / "bin/python",
        "-W",
        "ignore",
        "-c",
        COLLATE,
        json.dumps(SIZES),
        "--model_path_or_name",
        "model",
        "--backend",
        "causal",
        "--fast",
        "--track",
        "strict-small",
        "--results_dir",
        folder / "out" / "results",
        "--fast_eval_dir",
        folder / "evaluation_data" / "fast_eval",
        env=environment,
        seconds=300,
    )


def near(one, other):
    """Equal, floats to their last digits; nan is nan."""
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(near(one[name], other[name]) for name in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(near, one, other))
    if isinstance(one, float) and isinstance(other, float):
        return (math.isnan(one) and math.isnan(other)) or math.isclose(one, other, rel_tol=1e-7, abs_tol=1e-9)
    return one == other


def test_the_pipelines_own_collation_is_ours(submission, judge):
    judged = judge("BabyLM's collation", judges.version("babylm")[:12])
    folder, ours = submission
    status, said = collated(folder)
    assert status == 0, said
    theirs = json.loads((folder / "out/results/model/all_full_preds_and_fast_scores_causal.json").read_text())
    assert set(theirs.pop("glue")) == set(GLUE)
    assert theirs.keys() == ours.keys()
    for name in theirs:
        assert near(theirs[name], ours[name]), (name, str(theirs[name])[:300], str(ours[name])[:300])
    assert len(theirs["fast_eval_results"]["blimp"]) == 19, "a score for each checkpoint"
    judged.accepts("predictions, scores of 19 checkpoints and surprisals of `marin export --babylm`")


@pytest.mark.parametrize("what", ["checkpoint", "prediction", "surprisal"])
def test_the_pipelines_own_collation_refuses_less(submission, judge, tmp_path, what):
    judged = judge("BabyLM's collation", judges.version("babylm")[:12])
    shutil.copytree(submission[0] / "out", tmp_path / "out")
    (tmp_path / "evaluation_data").symlink_to(submission[0] / "evaluation_data")
    results = tmp_path / "out" / "results" / "model"
    if what == "checkpoint":
        shutil.rmtree(results / "chck_7M")
    else:
        place = {"prediction": "blimp/blimp_filtered/predictions.json", "surprisal": "AoA_word/surprisal.json"}[what]
        file = results / "main" / "zero_shot" / "causal" / place
        told = json.loads(file.read_text())
        (told["results"] if what == "surprisal" else told["anaphor"]["predictions"]).pop()
        file.write_text(json.dumps(told))
    status, said = collated(tmp_path)
    assert status == 1 and "AssertionError" in said, said
    judged.refuses(f"an export that lacks a {what}")
