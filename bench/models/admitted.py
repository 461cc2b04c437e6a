"""How many tasks of the installed lm-evaluation-harness can be recorded once their data is named as files; why not the others.

python -m bench.models.admitted
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from marin.errors import UsageError
from marin.plugins.evaluation.harness.tasks import checked, functions_of, task_files, task_settings, used_splits
from marin.plugins.evaluation.recorded.task import EvaluationTask


def main() -> None:
    """One JSON object: tasks, those that are admitted, those of them that name functions, and by key those that are not."""
    found = find_spec("lm_eval")
    if found is None or not found.submodule_search_locations:
        raise SystemExit("admitted: install requirements-evaluation.lock into this environment")
    folder = Path(found.submodule_search_locations[0]) / "tasks"
    files, broken = task_files(folder)
    tasks = {path: config for path, config in files.items() if isinstance(config.get("task"), str)}
    refused: Counter[str] = Counter()
    admitted = with_functions = 0
    for path, config in tasks.items():
        try:
            asked = task_settings(config)
            checked(EvaluationTask(config["task"], asked, dict.fromkeys(used_splits(asked), b"")), str(path))
        except UsageError as error:
            code = error.what == "a task that names code"
            refused["code: " + str(error.found)[:60] if code else str(error.where).rpartition(", ")[2]] += 1
        else:
            admitted += 1
            with_functions += any(True for _ in functions_of(asked))
    told = {
        "harness": version("lm-eval"),
        "tasks": len(tasks),
        "admitted": admitted,
        "with_functions": with_functions,
        "unreadable": len(broken),
        "refused": dict(refused.most_common()),
    }
    sys.stdout.write(json.dumps(told, indent=1) + "\n")


if __name__ == "__main__":
    main()
