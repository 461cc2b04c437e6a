"""BabyLM's tasks: files of the pipeline's own shape, asked and counted as it does, written as it reads them."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pytest

from marin.errors import DataError, DataMissing, UsageError
from marin.evaluation.scoring import Row, Scorer
from marin.evaluation.subject import Subject
from marin.plugins.evaluation.babylm.predictions import collate, predictions, shares
from marin.plugins.evaluation.babylm.scores import accuracy, determinant, reading, spearman
from marin.plugins.evaluation.babylm.scoring import evaluated
from marin.plugins.evaluation.babylm.submission import TRACKS, checkpoints
from marin.plugins.evaluation.babylm.tasks import KINDS, checked, items, read
from marin.plugins.evaluation.recorded.evaluated import Evaluated
from marin.plugins.evaluation.recorded.records import Settings, requests_of
from marin.plugins.evaluation.recorded.task import EvaluationTask
from marin.recipe.composition import compose
from marin.recipe.schema import Recipe

ROWS: dict[str, list[dict[str, Any]]] = {
    "blimp_filtered/anaphor.jsonl": [
        {
            "sentence_good": "she saw herself",
            "sentence_bad": "she saw himself",
            "field": "x",
            "UID": "anaphor",
            "linguistics_term": "y",
        }
    ]
    * 2,
    "supplement_filtered/hypernym.jsonl": [{"sentence_good": "a dog is", "sentence_bad": "a dog are"}],
    "ewok_filtered/social.jsonl": [
        {
            "Context1": "Ann helps.",
            "Context2": "Ann hurts.",
            "Target1": "Bo is glad.",
            "Target2": "Bo is sad.",
            "Domain": "social-relations",
            "ContextType": "",
            "ContextDiff": "",
            "TargetDiff": "",
        }
    ],
    "entity_tracking/regular.jsonl": [
        {"input_prefix": "Box 0 has", "options": [" a key", " a bell", " nothing"], "numops": 2}
    ],
    "wug_adj_nominalization/wug_adj_nominalization.jsonl": [
        {"sentences": "wuggity\twugness", "ratio": "0.2"},
        {"sentences": "dax\tdaxxxx", "ratio": "0.9"},
    ],
    "wug_past_tense/wug_past_tense.jsonl": [{"sentences": "wugged\twug\twag", "ratio": "0.5"}],
    "comps/comps_wugs_dist-before.jsonl": [
        {"prefix_acceptable": "A wug", "prefix_unacceptable": "A dax", "property_phrase": "can fly"}
    ],
}
UIDS = {
    "blimp_filtered": "anaphor",
    "supplement_filtered": "hypernym",
    "ewok_filtered": "social-relations",
    "entity_tracking": "regular_2_ops",
    "wug_adj_nominalization": "wug_adj",
    "wug_past_tense": "wug_past",
    "comps": "wugs_dist_before",
}
WORDS = {"dog": [{"context": "The "}, {"context": "a"}], "I": [{"context": "am"}]}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    for name, rows in ROWS.items():
        place = tmp_path / name
        place.parent.mkdir(exist_ok=True)
        place.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    (tmp_path / "reading").mkdir()
    table = ",item,word,prev_item,prev_word\n0,The, dog,,\n1,The dog, ran,The, dog\n"
    (tmp_path / "reading" / "reading_data.csv").write_text(table, "utf-8")
    (tmp_path / "aoa").mkdir()
    (tmp_path / "aoa" / "cdi_childes.json").write_text(json.dumps(WORDS), "utf-8")
    return tmp_path


@pytest.fixture
def found(data: Path, subject: Subject, scorer: Scorer) -> Evaluated:
    return evaluated(subject, scorer, read(data), Settings())


def totals(found: Evaluated, name: str) -> list[list[float]]:
    return [[request.total() for request in sample.requests] for sample in found.samples[name]]


def test_every_data_set_gives_predictions_in_the_pipelines_shape(found: Evaluated) -> None:
    assert [task.name for task in found.tasks] == [name for name in KINDS if not name.endswith("_fast")]
    for name, uid in UIDS.items():
        told = predictions(name, found.samples[name])
        assert list(told) == [uid]
        asked = next(rows for file, rows in ROWS.items() if file.startswith(f"{name}/"))
        assert [one["id"] for one in told[uid]["predictions"]] == [f"{uid}_{n}" for n in range(len(asked))]
        for one, sample in zip(told[uid]["predictions"], found.samples[name], strict=True):
            best = max(range(len(sample.requests)), key=lambda place: sample.requests[place].total())
            text = sample.requests[best].arguments[0]
            assert text.endswith(one["pred"]) and ("prob" in one) == name.startswith("wug")


def test_a_completion_is_the_tokens_that_end_in_it_and_the_first_token_is_never_scored(
    found: Evaluated, subject: Subject, scorer: Scorer
) -> None:
    tokens = tuple(subject.encode("Box 0 has a key"))  # a token for each letter
    (whole,) = scorer.score([Row(tokens, len(tokens) - 1)])
    assert totals(found, "entity_tracking")[0][0] == math.fsum(whole.logprobs[-6:])
    tokens = tuple(subject.encode("a dog is"))
    (whole,) = scorer.score([Row(tokens, len(tokens) - 1)])
    assert totals(found, "supplement_filtered")[0][0] == whole.total


def test_what_is_longer_than_the_context_loses_its_beginning_and_is_counted(subject: Subject, scorer: Scorer) -> None:
    line = json.dumps({"sentence_good": "word " * 60, "sentence_bad": "x"}).encode()
    task = checked(EvaluationTask("blimp_filtered", {"babylm": "blimp"}, {"long": line}), "here")
    (sample,) = evaluated(subject, scorer, [task], Settings()).samples["blimp_filtered"]
    long, short = sample.requests
    assert (len(long.rows[0].tokens), len(long.rows[0].logprobs)) == (scorer.seq_len + 1, scorer.seq_len)
    assert long.truncated == 300 - scorer.seq_len - 1
    assert (short.rows, short.total(), short.truncated) == ([], 0.0, 0), "one token: nothing is predicted"


def test_the_share_of_people_is_compared_with_the_share_of_the_model(found: Evaluated) -> None:
    (values,) = totals(found, "wug_past_tense")
    expected = math.exp(values[0]) / sum(map(math.exp, values))
    prob = predictions("wug_past_tense", found.samples["wug_past_tense"])["wug_past"]["predictions"][0]["prob"]
    assert prob == pytest.approx(expected, rel=1e-9)
    assert math.isnan(found.results["wug_past_tense"]["spearman,none"])
    assert abs(found.results["wug_adj_nominalization"]["spearman,none"]) == 1.0


def test_words_read_and_words_learned_have_surprisals(found: Evaluated, subject: Subject, scorer: Scorer) -> None:
    first, second = predictions("reading", found.samples["reading"])["reading"]["predictions"]
    assert math.isnan(first["prev_pred"]) and second["prev_pred"] == first["pred"] > 0
    (whole,) = scorer.score([Row(tuple(subject.encode("The dog")), 4)])
    assert first["pred"] == pytest.approx(-whole.total, rel=1e-6)
    told = predictions("aoa", found.samples["aoa"])
    assert [(one["target_word"], one["context_id"], one["context"]) for one in told] == [
        ("dog", 0, "The "),
        ("dog", 1, "a"),
    ]
    assert told[0]["surprisal"] == pytest.approx(-math.fsum(whole.logprobs[-3:]), rel=1e-6)
    assert found.results["aoa"]["surprisal,none"] == pytest.approx(sum(one["surprisal"] for one in told) / 2)


def test_a_recorded_answer_stands_where_it_is_not_asked_again(
    data: Path, found: Evaluated, subject: Subject, scorer: Scorer
) -> None:
    name = "comps"
    (sample,) = found.samples[name]
    row = msgspec.structs.replace(sample.requests[0].rows[0], logprobs=["0x1.0p+3"] * 7)
    recorded = requests_of(found.samples)
    key = (name, 0, 0, 0)
    recorded[key] = msgspec.structs.replace(recorded[key], rows=[row])
    tasks = read(data)
    forged = evaluated(subject, scorer, tasks, Settings(), recorded=recorded, again=())
    assert forged.samples[name][0].requests[0].total() == 56.0
    assert replace(forged, samples={**forged.samples, name: found.samples[name]}).samples == found.samples
    again = evaluated(subject, scorer, tasks, Settings(), recorded=recorded, again={key})
    assert again.samples == found.samples


def test_the_numbers_are_those_of_other_libraries() -> None:
    assert spearman([(1.0, 10.0), (2.0, 20.0), (3.0, 15.0)]) == 0.5
    assert spearman([(1.0, 1.0), (1.0, 2.0), (2.0, 3.0)]) == pytest.approx(math.sqrt(3) / 2, rel=1e-15)
    assert math.isnan(spearman([(1.0, 2.0), (1.0, 3.0)]))
    right = {"a": [True, False, True, True], "b": [False, True]}
    found = accuracy(right)
    errors = [np.std(values, ddof=1) / math.sqrt(len(values)) for values in right.values()]
    assert found["acc,none"] == 0.625
    assert found["acc_stderr,none"] == pytest.approx(math.hypot(*errors) / 2, rel=1e-12)
    draw = np.random.default_rng(3)
    matrix = draw.integers(-9, 9, (6, 6))
    assert determinant(matrix.tolist()) == round(np.linalg.det(matrix))
    assert determinant([[0, 2], [3, 1]]) == -6 and determinant([[0, 0], [0, 1]]) == 0


def test_reading_times_are_explained_as_by_least_squares() -> None:
    draw = np.random.default_rng(5)
    names = (
        "RTfirstfix",
        "RTfirstpass",
        "RTgopast",
        "RTrightbound",
        "self_paced_reading_time",
        "Subtlex_log10",
        "length",
        "context_length",
        "prev_length",
        "pred",
        "prev_pred",
    )
    rows: list[dict[str, Any]] = [{name: float(draw.normal()) for name in names} for _ in range(60)]
    rows[7] = {**rows[7], "prev_pred": None}
    rows[9] = {**rows[9], "RTgopast": ""}

    def explained(target: str, words: list[str]) -> float:
        kept = [row for row in rows if all(isinstance(row[name], float) for name in (target, *words, "pred"))]
        y = np.array([row[target] for row in kept])
        alone = [np.array([row[name] for row in kept]) for name in words]
        products = [a * b for place, a in enumerate(alone) for b in alone[place + 1 :]]
        base = np.stack([np.ones(len(kept)), *alone, *products], axis=1)
        whole = np.column_stack([base, [row["pred"] for row in kept]])
        left = [np.sum((y - x @ np.linalg.lstsq(x, y, rcond=None)[0]) ** 2) for x in (base, whole)]
        return float((left[0] - left[1]) / left[0])

    words = ["Subtlex_log10", "length", "context_length"]
    found = reading(rows)
    assert found["spr,none"] == pytest.approx(explained(names[4], [*words, "prev_length", "prev_pred"]), rel=1e-9)
    assert found["rt,none"] == pytest.approx(np.mean([explained(name, words) for name in names[:4]]), rel=1e-9)
    assert all(math.isnan(value) for value in reading(rows[:3]).values()), "fewer rows than columns"


def test_everything_is_collated_by_the_pipelines_names(found: Evaluated) -> None:
    full = {name: predictions(name, found.samples[name]) for name in UIDS}
    fast = {name: shares(name, found.samples[name], found.results[name]) for name in ("supplement_filtered", "reading")}
    told = collate(
        full, {"results": []}, [{"supplement_fast": fast["supplement_filtered"], "reading": fast["reading"]}] * 2
    )
    assert sorted(told) == sorted(
        [
            "blimp",
            "blimp_supplement",
            "ewok",
            "entity_tracking",
            "wug_adj",
            "wug_past",
            "comps",
            "aoa",
            "fast_eval_results",
        ]
    )
    assert len(told["fast_eval_results"]["blimp_supplement"]) == 2
    assert told["fast_eval_results"]["blimp_supplement"][0] in ({"hypernym": 1.0}, {"hypernym": 0.0})


def test_checkpoints_are_the_first_states_by_which_so_many_words_were_seen() -> None:
    recipe = Recipe()  # 8 sequences of 128 tokens a step
    facts = [SimpleNamespace(body=SimpleNamespace(step=step)) for step in (0, 900, 2000, 3000, 20_000)]
    run = SimpleNamespace(recipe=recipe, checkpoints=facts)
    found = checkpoints(run, Fraction(1), "strict-small")  # type: ignore[arg-type]
    assert {
        name: step for name, (step, _) in found.items() if name in ("chck_1M", "chck_2M", "chck_3M", "chck_4M")
    } == {"chck_1M": 2000, "chck_2M": 2000, "chck_3M": 3000, "chck_4M": 20_000}
    assert list(found)[-1] == "chck_20M" and found["chck_1M"][1] == 2000 * 8 * 128
    assert "chck_10M" in found and "chck_100M" not in found


def test_the_tracks_own_recipes_record_a_state_by_each_of_its_numbers_of_words() -> None:
    """With any tokens a word each of them is the state of the first train step that has seen so many."""
    for size, track in (("10M", "strict-small"), ("100M", "strict")):
        recipe = compose([f"+dataset=babylm_{size}", "+model=gpt2-small"]).recipe
        words = recipe.trainer.states_at_words or ()
        assert words == tuple(millions * 10**6 for millions in TRACKS[track])
        each = Fraction(3, 4)
        size_of = recipe.trainer.batch_size * recipe.model.seq_len * each
        steps = [math.ceil(count / size_of) for count in words]
        facts = [SimpleNamespace(body=SimpleNamespace(step=step)) for step in (0, *steps, recipe.last_step)]
        found = checkpoints(SimpleNamespace(recipe=recipe, checkpoints=facts), each, track)  # type: ignore[arg-type]
        for millions, (step, seen) in zip(TRACKS[track], found.values(), strict=True):
            assert 0 <= seen - millions * 10**6 < size_of and step in steps


def test_what_is_not_the_pipelines_data_is_refused(data: Path) -> None:
    with pytest.raises(DataMissing, match="evaluation_data"):
        read(data / "nothing")
    with pytest.raises(DataMissing, match="nothing of blimp_fast"):
        read(data, ["blimp_fast"])
    with pytest.raises(UsageError, match="expected blimp_f"):
        read(data, ["blimp_fas"])
    blimp = read(data, ["blimp_filtered"])[0].data
    for kind in ("ewok", "comps", "entity_tracking", "wug_past", "reading", "aoa"):
        with pytest.raises(DataError, match=r"anaphor:1"):
            list(items(EvaluationTask("x", {"babylm": kind}, blimp)))
    for name, config in (("blimp_fast", {"babylm": "ewok"}), ("other", {"babylm": "blimp"}), ("comps", {})):
        with pytest.raises(DataError, match="no data set"):
            checked(EvaluationTask(name, config, blimp), "here")
    (data / "aoa" / "cdi_childes.json").write_text("[1]", "utf-8")
    with pytest.raises(DataError, match="the fields of aoa"):
        read(data, ["aoa"])


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("entity_tracking", '{"options": ["a"], "input_prefix": "x", "numops": 1e400}'),
        ("entity_tracking", '{"options": [], "input_prefix": "x", "numops": 1}'),
        ("blimp_filtered", '{"sentence_good": "\\ud800", "sentence_bad": "b"}'),
        ("blimp_filtered", '{"sentence_good":' * 100_000),
    ],
)
def test_a_line_that_nobody_can_ask_is_refused(tmp_path: Path, name: str, line: str) -> None:
    (tmp_path / name).mkdir()
    (tmp_path / name / "part.jsonl").write_text(line + "\n", "utf-8")
    with pytest.raises(DataError, match="part:1"):
        read(tmp_path, [name])
