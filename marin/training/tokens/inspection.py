"""What train steps saw, for whoever looks: ``python -m marin.training.tokens.inspection`` reads a request as JSON on
stdin (``recipe`` as recorded, ``cache``: folder of the train split's token cache, ``steps``: numbers) and prints one
JSON
list: step, digest of the
batch, and its sequences with part, index, token ids and the first and last document of the part."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from marin.recipe.schema import from_plain
from marin.training.data import seen_at


def main() -> None:
    """Answer the request on stdin."""
    request = json.load(sys.stdin)
    recipe = from_plain(request["recipe"], where="stdin")
    found = []
    for step in request["steps"]:
        sequences, digest = seen_at(recipe, Path(request["cache"]), int(step))
        found.append(
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
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
