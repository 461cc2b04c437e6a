"""Makes a Parquet file of the two books of babylm_sample, ten paragraphs a row: a source of another kind beside pages.warc.gz.

python data/make_books.py FILE.parquet
"""

from __future__ import annotations

import sys
from itertools import batched
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

BOOKS = Path(__file__).parent / "babylm_sample" / "train"
PARAGRAPHS = 10


def main(target: Path) -> None:
    """Write rows of text, title and licence."""
    rows = [
        {"text": "\n\n".join(part), "title": path.stem, "licence": "public domain"}
        for path in sorted(BOOKS.glob("*.train"))
        for part in batched(path.read_text("utf-8").splitlines(), PARAGRAPHS)
    ]
    target.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows), target)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
