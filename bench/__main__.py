"""`python -m bench [--quick] [--json]`: how long commands and the main job take (bench/RESULTS.md).

Every row is measured in a folder of its own with a key of its own; the main job runs in a fresh clone of HEAD with
this environment. `--quick` leaves the main job out.
"""

from __future__ import annotations

import argparse
import json
import sys

from bench import commands, pipeline


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="leave the main job out")
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    options = parser.parse_args()
    groups = [commands.measure] if options.quick else [commands.measure, pipeline.measure]
    for measure in groups:
        for row in measure():
            line = json.dumps({"what": row.what, "value": row.value, "unit": row.unit}) if options.json else str(row)
            sys.stdout.write(line + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
