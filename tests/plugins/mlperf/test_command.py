"""`marin mlperf` and `marin export --mlperf`: precedence, refusals, and what is said of a run's seeds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

Marin = Any


def size(marin: Marin, *arguments: object) -> object:
    told = marin("mlperf", "table", "--as", "log", *arguments)
    assert told.status == 0, told.err
    return {line["key"]: line["value"] for line in told.lines}["global_batch_size"]


def test_defaults_then_the_file_then_the_command_line(marin: Marin, tmp_path: Path) -> None:
    file = tmp_path / "tuned.json"
    file.write_text('{"trainer": {"batch_size": 16}}')
    assert size(marin) == 8
    assert size(marin, "--config-json", file) == 16
    assert size(marin, "--config-json", file, "trainer.batch_size=32") == 32
    refused = marin("mlperf", "table", "--config-json", file, "optimizer.beta1=0.5")
    assert refused.status == 2
    assert "opt_adamw_beta_1 (optimizer.beta1): expected 0.9, found 0.5" in refused.err
    assert marin("mlperf", "table", "optimizer.beta1=0.5", "--unchecked").status == 0
    several = marin("mlperf", "table", "trainer.batch_size=interval(8,16)")
    assert several.status == 2 and "nothing here draws from an interval" in several.err


def test_one_command_prints_every_form(marin: Marin) -> None:
    name = "opt_base_learning_rate"
    readme, rules = (marin("mlperf", "table", "--as", form).out for form in ("readme", "rules"))
    assert f"| `{name}` | `optimizer.learning_rate` | 0.006 | yes | a number from 1e-05 to 0.1 |" in readme
    assert f"NAME:  {name}\n    REQ:   EXACTLY_ONE\n    CHECK: \" 1e-05 <= v['value'] <= 0.1 \"" in rules
    (row,) = [line for line in marin("mlperf", "table", "--json").lines if line["name"] == name]
    assert row["tunable"] and row["value"] == 0.006


def test_a_run_that_is_no_entry_is_refused_in_one_line(marin: Marin, run: str, tmp_path: Path) -> None:
    for arguments in (("export", "--mlperf", tmp_path / "log.txt"), ("mlperf", "seeds")):
        told = marin(*arguments)
        assert told.status in (1, 2, 3) and told.err.count("\n") == 1, told.err
    assert not (tmp_path / "log.txt").exists()
    assert marin("export", "--mlperf", tmp_path / "log.txt", "--mlperf-submission", "{").status == 2
