"""BabyLM's zero-shot tasks: files of the pipeline's own shape, scored as it scores them, written as it reads them."""

from __future__ import annotations

import json
import math
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace

import pytest

from marin.errors import DataError, DataMissing
from marin.evaluation.babylm import FULL, BabyLM, items, spearman
from marin.evaluation.scoring import Row, Scorer
from marin.evaluation.subject import Subject
from marin.export.babylm import checkpoints
from marin.recipe.schema import Recipe

ROWS = {
    "blimp_filtered/anaphor.jsonl": [
        {"sentence_good": "she saw herself", "sentence_bad": "she saw himself", "field": "x", "UID": "anaphor",
         "linguistics_term": "y"}] * 2,
    "supplement_filtered/hypernym.jsonl": [{"sentence_good": "a dog is", "sentence_bad": "a dog are"}],
    "ewok_filtered/social.jsonl": [
        {"Context1": "Ann helps.", "Context2": "Ann hurts.", "Target1": "Bo is glad.", "Target2": "Bo is sad.",
         "Domain": "social-relations", "ContextType": "", "ContextDiff": "", "TargetDiff": ""}],
    "entity_tracking/regular.jsonl": [
        {"input_prefix": "Box 0 has", "options": [" a key", " a bell", " nothing"], "numops": 2}],
    "wug_adj_nominalization/wug_adj_nominalization.jsonl": [
        {"sentences": "wuggity\twugness", "ratio": "0.2"}, {"sentences": "dax\tdaxxxx", "ratio": "0.9"}],
    "wug_past_tense/wug_past_tense.jsonl": [{"sentences": "wugged\twug\twag", "ratio": "0.5"}],
    "comps/comps_wugs_dist-before.jsonl": [
        {"prefix_acceptable": "A wug", "prefix_unacceptable": "A dax", "property_phrase": "can fly"}],
}  # fmt: skip
UIDS = {
    "blimp_filtered": "anaphor",
    "supplement_filtered": "hypernym",
    "ewok_filtered": "social-relations",
    "entity_tracking": "regular_2_ops",
    "wug_adj_nominalization": "wug_adj",
    "wug_past_tense": "wug_past",
    "comps": "wugs_dist_before",
}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    for name, rows in ROWS.items():
        place = tmp_path / name
        place.parent.mkdir(exist_ok=True)
        place.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return tmp_path


def test_every_task_gives_predictions_in_the_pipelines_shape(data: Path, subject: Subject, scorer: Scorer) -> None:
    asked = BabyLM(subject, scorer)
    for dataset, task in FULL.items():
        found = asked.predictions(data / dataset, task)
        (uid,) = found.subtasks
        told = found.subtasks[uid]["predictions"]
        assert uid == UIDS[dataset] and [one["id"] for one in told] == [f"{uid}_{n}" for n in range(len(told))]
        (asked_of,) = (rows for name, rows in ROWS.items() if name.startswith(f"{dataset}/"))
        assert len(told) == len(asked_of)
        assert all(one["pred"] in item.said for one, item in zip(told, items(data / dataset, task), strict=True))
        assert all(("prob" in one) == task.startswith("wug") for one in told)
        assert math.isnan(found.score) if dataset == "wug_past_tense" else -1 <= found.score <= 100


def test_a_completion_is_the_tokens_that_end_in_it_and_the_first_token_is_never_scored(
    subject: Subject, scorer: Scorer
) -> None:
    asked, text = BabyLM(subject, scorer), "Box 0 has a key"
    tokens = tuple(subject.encode(text))  # a token for each letter
    (whole,) = scorer.score([Row(tokens, len(tokens) - 1)])
    (part,) = asked.totals([asked.row(text, len(" a key"))])
    assert part == math.fsum(whole.logprobs[-6:])
    assert asked.totals([asked.row(text, len(text)), asked.row("x", 1)]) == [whole.total, 0.0]
    long = asked.row("word " * 60, 300)
    assert long is not None and (len(long.tokens), long.scored) == (scorer.seq_len + 1, scorer.seq_len)


def test_the_share_of_people_is_compared_with_the_share_of_the_model(
    data: Path, subject: Subject, scorer: Scorer
) -> None:
    asked = BabyLM(subject, scorer)
    found = asked.predictions(data / "wug_past_tense", "wug_past")
    totals = asked.totals([asked.row(text, len(text)) for text in ("wugged", "wug", "wag")])
    expected = math.exp(totals[0]) / sum(map(math.exp, totals))
    assert found.subtasks["wug_past"]["predictions"][0]["prob"] == pytest.approx(expected, rel=1e-9)


def test_spearman_has_the_mean_rank_of_equal_values() -> None:
    assert spearman([(1.0, 10.0), (2.0, 20.0), (3.0, 15.0)]) == pytest.approx(0.5)
    assert spearman([(1.0, 1.0), (1.0, 2.0), (2.0, 3.0)]) == pytest.approx(math.sqrt(3) / 2)
    assert math.isnan(spearman([(1.0, 2.0), (1.0, 3.0)]))


def test_words_read_and_words_learned_have_surprisals(tmp_path: Path, subject: Subject, scorer: Scorer) -> None:
    asked, table = BabyLM(subject, scorer), tmp_path / "reading_data.csv"
    table.write_text("item,word,prev_item,prev_word\nThe, dog,,\nThe dog, ran,The, dog\n", encoding="utf-8")
    first, second = asked.reading(table)["reading"]["predictions"]
    assert math.isnan(first["prev_pred"]) and second["prev_pred"] == first["pred"] > 0
    tokens = tuple(subject.encode("The dog"))
    (whole,) = scorer.score([Row(tokens, 4)])
    assert first["pred"] == pytest.approx(-whole.total, rel=1e-6)
    words = tmp_path / "cdi_childes.json"
    words.write_text(json.dumps({"dog": [{"context": "The "}, {"context": "a"}], "I": [{"context": "am"}]}), "utf-8")
    told = asked.surprisals(words, "chck_1M", 10**6)
    assert [(one["target_word"], one["context_id"], one["step"], one["word_count"]) for one in told] == [
        ("dog", 0, "chck_1M", 10**6),
        ("dog", 1, "chck_1M", 10**6),
    ]
    assert told[0]["surprisal"] == pytest.approx(-math.fsum(whole.logprobs[-3:]), rel=1e-6)


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


def test_what_is_not_the_pipelines_data_is_refused(data: Path) -> None:
    with pytest.raises(DataMissing, match="evaluation_data"):
        items(data / "nothing", "blimp")
    for task in ("ewok", "comps", "entity_tracking", "wug_past"):
        with pytest.raises(DataError, match=r"anaphor.jsonl:1"):
            items(data / "blimp_filtered", task)
