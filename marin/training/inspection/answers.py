"""What train steps saw: ``python -m marin.training.inspection.answers`` answers requests on stdin, each a line
of JSON (``recipe`` as recorded, ``cache``: folder of the train split's token cache, ``steps``: numbers), with a line each:
``found``, a list of step, digest of the batch, and its sequences with part, index, token ids and the first and last
document of the part; or ``refused``, why there is none. It ends with its input.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from ledger import LedgerError
from marin.recipe.schema import from_plain
from marin.training.runtime.unused import unused_imports


def main() -> None:
    """Answer the requests on stdin."""
    with unused_imports():
        import marin.training.data  # noqa: F401
    for line in sys.stdin:
        try:
            answer: dict[str, Any] = {"found": observations(json.loads(line))}
        except (LedgerError, OSError, ValueError, LookupError, TypeError) as error:
            answer = {"refused": " ".join(f"{type(error).__name__}: {error}".split())}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


def observations(request: dict[str, Any]) -> list[dict[str, Any]]:
    """What the steps of one request saw.

    Raises:
        DataError: the token cache cannot be read.
        UsageError: the recipe is not one of this version.
    """
    from marin.training.inspection.batch import batch_at

    recipe = from_plain(request["recipe"], where="stdin")
    told = []
    for step in request["steps"]:
        sequences, digest = batch_at(recipe, Path(request["cache"]), int(step))
        told.append(
            {
                "step": int(step),
                "digest": digest,
                "sequences": [
                    {
                        "part": sequence.part,
                        "index": sequence.index,
                        "tokens": sequence.tokens.tolist(),
                        "documents": [sequence.documents.start, sequence.documents.stop - 1],
                    }
                    for sequence in sequences
                ],
            }
        )
    return told


if __name__ == "__main__":
    main()
