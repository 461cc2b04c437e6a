"""What was compared, as one self-contained page."""

from __future__ import annotations

import base64

from marin.plugins.lab.comparing import text
from marin.plugins.lab.comparing.compared import Compared, called
from marin.plugins.lab.comparing.importance import METHOD
from marin.plugins.lab.comparing.pictures import NARROW, pictures
from marin.reporting.template import render


def page(found: Compared, runs: str = "") -> bytes:
    """The page. ``runs``: where the pages of runs lie from it, with ``{run}`` for the id; "" where there are none."""
    pairs = zip(pictures(found), pictures(found, NARROW), strict=True)
    drawn = [
        (said, *(base64.b64encode(image).decode() for image in (wide, narrow))) for (said, wide), (_, narrow) in pairs
    ]
    return render(
        "experiments/compared.html.j2",
        title=found.title,
        heading=text.heading(found),
        verdict=found.verdict,
        because=found.because,
        group_titles=text.group_titles(found)[:-1],
        groups=[row[:-1] for row in text.group_rows(found)],
        spread=text.SPREAD,
        ends=text.ends(found),
        many=len(found.groups) > text.FEW,
        pictures=drawn,
        difference_titles=text.DIFFERENCES,
        differences=text.difference_tables(found),
        method=METHOD,
        importance_titles=text.IMPORTANCE,
        importance=[(called(metric), text.importance_rows(found, metric)) for metric in found.importance],
        remarks=text.remarks(found),
        run_titles=("run", "group", "seed", *map(called, found.metrics)),
        runs=[
            (
                run,
                runs.format(run=run) if runs else "",
                [group.name, found.seeds[run], *(_shown(found.values[run].get(metric)) for metric in found.metrics)],
            )
            for group in found.groups
            for run in group.runs
        ],
    )


def _shown(value: float | None) -> str:
    return "–" if value is None else f"{value:.6g}"
