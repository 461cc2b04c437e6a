"""lm-evaluation-harness's own clients against the server: of completions, the log-likelihoods of `marin eval`, to the bit; of
chats, the texts of our own generation by the same template; and what a task asks for that is not here is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from tokenizers import Tokenizer

from marin.data.chat import STOPS, TEMPLATE
from marin.data.template import ChatTemplate
from marin.evaluation.scoring import Scorer
from marin.evaluation.subject import Subject
from marin.plugins.serve import files

pytestmark = pytest.mark.evaluation

TASK = {
    "task": "pairs",
    "dataset_path": "json",
    "dataset_kwargs": {"data_files": {"test": "pairs.jsonl"}},
    "output_type": "multiple_choice",
    "test_split": "test",
    "doc_to_text": "{{before}}",
    "doc_to_target": 0,
    "doc_to_choice": "{{[good, bad]}}",
    "metric_list": [{"metric": "acc", "aggregation": "mean", "higher_is_better": True}],
}
ROWS = [
    {"before": before, "good": good, "bad": bad}
    for before, good, bad in (
        ("the dog", "runs", "run"),
        ("", "she is here", "she are"),
        ("x" * 40, "a", "bb"),
        ("we", "sat", "é"),
    )
]


def test_the_client_of_the_harness_gets_the_numbers_of_our_own_evaluation(
    address: str, subject: Subject, scorer: Scorer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from lm_eval import simple_evaluate
    from lm_eval.tasks import TaskManager

    from marin.plugins.evaluation.harness.recording import evaluated
    from marin.plugins.evaluation.harness.tasks import read_named
    from marin.plugins.evaluation.recorded.records import Settings

    for name in ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE", "TRANSFORMERS_OFFLINE"):
        monkeypatch.setenv(name, "1")
    (tmp_path / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    (tmp_path / "pairs.yaml").write_text(yaml.safe_dump(TASK))
    ours = evaluated(
        subject, scorer, read_named(["pairs"], tmp_path).tasks, Settings(limit=None, num_fewshot=None, seed=1)
    )

    folder = tmp_path / "tokenizer"
    folder.mkdir()
    saved = Tokenizer.from_str(subject.tokenizer.to_str())
    saved.add_special_tokens(["<|endoftext|>"])
    saved.save(str(folder / "tokenizer.json"))
    said = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|endoftext|>", "bos_token": "<|endoftext|>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(said))
    theirs_folder = tmp_path / "theirs"
    theirs_folder.mkdir()
    (theirs_folder / "pairs.jsonl").write_bytes((tmp_path / "pairs.jsonl").read_bytes())
    data = {"data_files": {"test": str(theirs_folder / "pairs.jsonl")}}
    (theirs_folder / "pairs.yaml").write_text(yaml.safe_dump({**TASK, "dataset_kwargs": data}))
    theirs = simple_evaluate(
        model="local-completions",
        model_args={
            "base_url": f"{address}/v1/completions",
            "model": "aaaa",
            "tokenizer": str(folder),
            "tokenizer_backend": "huggingface",
            "max_length": subject.recipe.model.seq_len + 1,
            "num_concurrent": 3,
        },
        batch_size=2,
        tasks=["pairs"],
        task_manager=TaskManager(include_path=str(theirs_folder)),
        bootstrap_iters=100,
    )
    assert theirs is not None
    found = {one["doc_id"]: [float(value) for value, _ in one["filtered_resps"]] for one in theirs["samples"]["pairs"]}
    expected = {
        sample.doc: [sum(float.fromhex(value) for value in request.rows[0].logprobs) for request in sample.requests]
        for sample in ours.samples["pairs"]
    }
    assert found == expected
    assert theirs["results"]["pairs"]["acc,none"] == ours.results["pairs"]["acc,none"]


ASKED = {
    "task": "asked",
    "dataset_path": "json",
    "output_type": "generate_until",
    "test_split": "test",
    "doc_to_text": "{{before}}",
    "doc_to_target": "{{good}}",
    "metric_list": [{"metric": "exact_match", "aggregation": "mean", "higher_is_better": True}],
}

SHORT = [row for row in ROWS if len(row["before"]) < 20]
"""What fits the context as a chat."""


def chatted(address: str, folder: Path, **kwargs: object) -> list[str]:
    """What the harness's client of chats gets for each row of ``SHORT``, where the task asks for ``kwargs``."""
    from lm_eval import simple_evaluate
    from lm_eval.tasks import TaskManager

    folder.mkdir()
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in SHORT))
    data = {"data_files": {"test": str(folder / "rows.jsonl")}}
    task = {**ASKED, "dataset_kwargs": data, "generation_kwargs": {"until": ["\n\n"], "max_gen_toks": 5, **kwargs}}
    (folder / "asked.yaml").write_text(yaml.safe_dump(task))
    found = simple_evaluate(
        model="local-chat-completions",
        model_args={
            "base_url": f"{address}/v1/chat/completions",
            "model": "aaaa",
            "num_concurrent": 2,
            "max_retries": 1,
        },
        tasks=["asked"],
        task_manager=TaskManager(include_path=str(folder)),
        apply_chat_template=True,
        bootstrap_iters=100,
    )
    assert found is not None
    by_doc = sorted(found["samples"]["asked"], key=lambda one: one["doc_id"])
    return [one["filtered_resps"][0] for one in by_doc]


def test_the_client_of_chats_gets_the_texts_of_our_own_generation(
    address: str, subject: Subject, scorer: Scorer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE", "TRANSFORMERS_OFFLINE"):
        monkeypatch.setenv(name, "1")
    template = ChatTemplate(TEMPLATE, {}, where="test")
    wanted = files.numbered(
        [
            files.TextRequest(files.instruction_prompt(row["before"], template), 5, 0.0, ("\n\n", *STOPS))
            for row in SHORT
        ]
    )
    ours = [one.text for one in files.say_all(subject, scorer, wanted, 0, lambda count: None)]
    theirs = chatted(address, tmp_path / "asked", do_sample=False, temperature=0.0, top_p=1.0, top_k=0, num_beams=1)
    assert theirs == ours and len(set(theirs)) > 1
    for name, value in (("top_k", 5), ("top_p", 0.95), ("max_new_tokens", 8)):
        with pytest.raises(Exception, match=rf"400|{name}"):
            chatted(address, tmp_path / name, **{name: value})
