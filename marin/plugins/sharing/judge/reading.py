"""``python -m marin.plugins.sharing.judge.reading FOLDER``: a recipe's programs as files of ``FOLDER/programs``.

On stdin: ``recipe`` as recorded, ``recorded``: digests of the programs by name, ``run``. The folder has the run's ``tokens`` and
``tokenizer``. What the installed code makes of the recipe is written where it is what was recorded, and otherwise nothing is.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np

from ledger import canonical_bytes, digest_bytes, tensor_digest
from marin.process.arithmetic import apply
from marin.recipe.schema import Execution, Recipe, from_plain


def main() -> None:
    """Write them, or end with a line that says why not."""
    folder, asked = Path(sys.argv[1]), json.load(sys.stdin)
    recipe = from_plain(asked["recipe"], where="stdin")
    apply(recipe.arithmetic, Execution(devices=1))
    write(folder, recipe, asked["recorded"], asked["run"])


def write(folder: Path, recipe: Recipe, recorded: dict[str, str], run: str) -> None:
    """All files of one run; the arithmetic contract is in force."""
    from marin.plugins.exact.step import programs_of
    from marin.training.data import DataOrder, streams, token_dataset
    from marin.training.model import vocabulary_size
    from marin.training.optimizers.rule import optimizer
    from marin.training.state import state_like
    from marin.training.step.slices import Layout

    vocabulary = vocabulary_size(folder / "tokenizer", recipe.model)
    layout = Layout(state_like(recipe, vocabulary), optimizer(recipe), 1)
    made = programs_of(recipe, vocabulary)
    for name, program in made.items():
        if program.digest != recorded.get(name):
            sys.exit(f"the {name} of this recipe is {program.digest} here, and {recorded.get(name)} in the record")
    caches = streams(recipe, folder / "tokens" / "train")
    order = DataOrder(recipe, {name: token_dataset(cache, recipe.model.seq_len)[1] for name, cache in caches.items()})
    size = recipe.trainer.batch_size
    numbers = order(range(recipe.trainer.num_steps * size)).reshape(-1, size).tolist()
    hints = {
        "moments": list(layout.moment_names),
        "parameters": list(layout.param_names),
        "sequences": {str(recipe.first_step + step): row for step, row in enumerate(numbers)},
    }
    out = folder / "programs"
    (out / "constants").mkdir(parents=True)
    (out / f"{run}.json").write_bytes(canonical_bytes(hints))
    for program in made.values():
        data = canonical_bytes(program.plain())
        assert digest_bytes(data) == program.digest
        (out / f"{program.digest.removeprefix('sha256:')}.json").write_bytes(data)
        for value in program.values():
            name = tensor_digest(value).removeprefix("sha256:")
            (out / "constants" / name).write_bytes(np.ascontiguousarray(value).tobytes())


if __name__ == "__main__":
    main()
