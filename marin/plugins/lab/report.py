"""The findings of an experiment for people: text, Markdown, a table as CSV, a plot as SVG, one self-contained page.

The files are a function of the findings alone: the same events give the same bytes, and the tree that the store keeps
has the same digest, no matter who asks for it again.
"""

from __future__ import annotations

import base64
import csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from marin.history.projection.identity import Ids
from marin.plugins.lab.analysis import Findings, conclusion, spent
from marin.plugins.lab.statistics import Comparison, Summary
from marin.reporting.fonts import use_font_cache
from marin.reporting.template import in_markdown, render

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PAINTED: dict[Any, Any] = {"svg.hashsalt": "marin", "svg.fonttype": "none", "font.size": 10}
ARMS = ("metric", "arm", "n", "mean", "sd", "least", "greatest")
COMPARISONS = ("metric", "arm", "against", "difference", "95% interval", "pairs", "r", "test", "p", "p (Holm)")


def number(value: float | None, digits: int = 5) -> str:
    """A number as tables show it; a dash for none."""
    return "–" if value is None else f"{value:.{digits}g}"


def arm_rows(findings: Findings) -> list[tuple[str, ...]]:
    """One row for every metric and arm, those without a value too."""
    return [
        (metric, arm, *_summary(found)) for metric in findings.metrics for arm, found in findings.arms[metric].items()
    ]


def _summary(found: Summary | None) -> tuple[str, ...]:
    if found is None:
        return ("0", "–", "–", "–", "–")
    return (str(found.n), number(found.mean), number(found.sd, 3), number(found.least), number(found.greatest))


def comparison_rows(items: Sequence[Comparison]) -> list[tuple[str, ...]]:
    """One row for every comparison."""
    return [
        (
            item.metric,
            item.arm,
            item.baseline,
            f"{item.difference:+.5g}",
            "–" if item.interval is None else f"{item.interval[0]:+.4g} to {item.interval[1]:+.4g}",
            str(item.pairs),
            number(item.correlation, 3),
            item.test + ("" if item.alternative == "two-sided" else f" ({item.alternative})"),
            number(item.p, 4),
            number(item.p_holm, 4),
        )
        for item in items
    ]


def heading(findings: Findings) -> list[tuple[str, str]]:
    """What was registered, as name and value."""
    fact, body = findings.registration, findings.registration.body
    return [
        ("experiment", body.experiment),
        ("question", body.question),
        ("hypothesis", body.hypothesis),
        ("primary", f"{body.primary['name']}, {body.primary['direction']} is better"),
        ("test", f"{body.test}, {body.alternative}, alpha {body.alpha:g}, baseline {body.baseline}"),
        ("seeds", ", ".join(body.seeds)),
        ("stopping", body.stopping_rule),
        ("cost", _cost(findings)),
        ("registered", f"event {fact.index}, {fact.time[:19]}Z, {body.registration}"),
        ("verdict", conclusion(findings)),
    ]


def _cost(findings: Findings) -> str:
    cap = findings.registration.body.cost_cap
    return ", ".join(
        f"{value:.3g} {name} executed{f' of {limit:.3g}' if (limit := cap.get(name)) is not None else ''}"
        for name, value in spent(findings.results).items()
    )


def table_csv(findings: Findings) -> str:
    """Every value that counts: metric, arm, seed, run, value."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(("metric", "arm", "seed", "run", "value"))
    runs: dict[tuple[str, int], str] = {}
    for result in findings.results:
        if findings.metrics[0] in result.metrics:
            runs.setdefault((result.arm, result.seed), result.run)
    for metric in findings.metrics:
        for arm, by_seed in findings.values[metric].items():
            for seed, value in by_seed.items():
                writer.writerow((metric, arm, seed, runs.get((arm, seed), ""), repr(value)))
    return out.getvalue()


NOBODY = Ids("")


@dataclass(frozen=True)
class Places:
    """Where else the runs can be looked at: addresses of `marin site`'s folder, of MLflow and of a project of W&B, "" where there
    is none. ``ids`` are those of MLflow."""

    site: str = ""
    mlflow: str = ""
    wandb: str = ""
    ids: Ids = NOBODY

    def of(self, run: str) -> tuple[str, ...]:
        """Links to a run: its report, the data browser, MLflow, W&B."""
        links = (
            (self.site, "report", f"runs/{run}/report.html"),
            (self.site, "data", f"runs/{run}/lineage.html"),
            (self.mlflow, "MLflow", f"#/experiments/0/runs/{self.ids.run(run)}"),
            (self.wandb, "W&B", f"runs/{run}"),
        )
        return tuple(f"[{name}]({base.rstrip('/')}/{path})" for base, name, path in links if base)


NOWHERE = Places()


def markdown(findings: Findings, places: Places = NOWHERE) -> str:
    """The report as Markdown; while runs are missing it says how many, as a running summary does."""
    body = findings.registration.body
    wanted = len(body.arms) * len(body.seeds)
    done = sum(len(by_seed) for by_seed in findings.values.get(findings.metrics[0], {}).values())
    parts = [
        f"# {in_markdown(body.experiment)}\n",
        "\n".join(f"- **{name}**: {in_markdown(value)}" for name, value in heading(findings)[1:]),
        f"- **done**: {done} of {wanted} runs" + ("" if done == wanted else "; a running summary"),
        "\n## Arms\n",
        _markdown_table(ARMS, arm_rows(findings)),
        "\n![primary metric](plot.svg)\n",
        "\n## Comparisons\n",
        _markdown_table(COMPARISONS, comparison_rows([*findings.primary, *findings.secondary])),
    ]
    for title, lines in (("Deviations from the registration", findings.deviations), ("Notes", _notes(findings))):
        parts += [f"\n## {title}\n", "\n".join(f"- {in_markdown(line)}" for line in lines) or "None."]
    parts += ["\n## Runs\n", _markdown_table(("run", "arm", "seed", "state", "executed"), _runs(findings))]
    if findings.results and (places.site or places.mlflow or places.wandb):
        parts += [
            "\n## Where to look\n",
            "\n".join(f"- {in_markdown(item.run)}: {', '.join(places.of(item.run))}" for item in findings.results),
        ]
    return "\n".join(parts) + "\n"


def _markdown_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [columns, ["---"] * len(columns), *([in_markdown(cell) for cell in row] for row in rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _runs(findings: Findings) -> list[tuple[str, ...]]:
    return [(item.run, item.arm, str(item.seed), item.status, f"{item.seconds:.1f} s") for item in findings.results]


def _notes(findings: Findings) -> list[str]:
    said = [
        f"{item.arm} against {item.baseline}, {item.metric}: {item.note}"
        for item in (*findings.primary, *findings.secondary)
        if item.note
    ]
    return [*findings.notes, *said]


def plot(findings: Findings) -> bytes:
    """The primary metric as SVG: a dot for every run, seeds joined across arms, mean and standard deviation beside."""
    use_font_cache()
    import matplotlib  # a second; only where a plot is drawn
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    metric = findings.metrics[0]
    arms = list(findings.values[metric])
    with matplotlib.rc_context(PAINTED):
        figure = Figure(figsize=(max(4.0, 1.3 * len(arms) + 1.5), 3.4), layout="constrained")
        FigureCanvasSVG(figure)
        axes = figure.add_subplot()
        for seed in sorted({seed for by_seed in findings.values[metric].values() for seed in by_seed}):
            points = [
                (x, by_seed[seed]) for x, by_seed in enumerate(findings.values[metric].values()) if seed in by_seed
            ]
            axes.plot(
                [x for x, _ in points],
                [y for _, y in points],
                marker="o",
                markersize=4,
                linewidth=0.8,
                color="#7a8794",
                label=f"seed {seed}",
            )
        for x, arm in enumerate(arms):
            found = findings.arms[metric][arm]
            if found is not None:
                axes.errorbar(
                    x + 0.12, found.mean, yerr=found.sd or 0.0, fmt="D", markersize=5, capsize=4, color="#0969da"
                )
        axes.set_xticks(range(len(arms)), arms, parse_math=False)
        axes.set_xlim(-0.5, len(arms) - 0.5)
        axes.set_ylabel(metric, parse_math=False)
        axes.grid(axis="y", linewidth=0.4)
        return svg(figure, f"{metric} by arm")


def svg(figure: Figure, title: str) -> bytes:
    """A figure without clock or version in it."""
    out = io.BytesIO()
    figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None, "Title": title})
    return out.getvalue()


def html(findings: Findings, image: bytes) -> bytes:
    """One self-contained page."""
    body = findings.registration.body
    described = "; ".join(
        f"{row[1]}: mean {row[3]}, sd {row[4]}, n {row[2]}"
        for row in arm_rows(findings)
        if row[0] == body.primary["name"]
    )
    return render(
        "experiments/registered.html.j2",
        name=body.experiment,
        conclusion=conclusion(findings),
        heading=heading(findings)[1:-1],
        arm_titles=ARMS,
        arms=arm_rows(findings),
        picture=base64.b64encode(image).decode(),
        described=f"{body.primary['name']} by arm: {described}",
        comparison_titles=COMPARISONS,
        comparisons=comparison_rows([*findings.primary, *findings.secondary]),
        deviations=findings.deviations,
        notes=_notes(findings),
        runs=_runs(findings),
        registration=body.registration,
        event=findings.registration.index,
    )


def files(findings: Findings) -> Iterator[tuple[str, bytes]]:
    """The report as the files of its artifact: report.md, report.html, table.csv, plot.svg."""
    image = plot(findings)
    yield "plot.svg", image
    yield "report.html", html(findings, image)
    yield "report.md", markdown(findings).encode()
    yield "table.csv", table_csv(findings).encode()


def as_json(findings: Findings) -> dict[str, Any]:
    """The findings as one JSON object."""
    import msgspec

    body = findings.registration.body
    return {
        "experiment": body.experiment,
        "registration": {"event": findings.registration.index, **msgspec.to_builtins(body)},
        "verdict": findings.verdict,
        "supported": findings.supported,
        "conclusion": conclusion(findings),
        "arms": {
            metric: {arm: msgspec.to_builtins(found) for arm, found in of_arm.items()}
            for metric, of_arm in findings.arms.items()
        },
        "comparisons": {
            "primary": [msgspec.to_builtins(item) for item in findings.primary],
            "secondary": [msgspec.to_builtins(item) for item in findings.secondary],
        },
        "spent": spent(findings.results),
        "deviations": list(findings.deviations),
        "notes": _notes(findings),
        "runs": [
            {
                "run": item.run,
                "arm": item.arm,
                "seed": str(item.seed),
                "status": item.status,
                "seconds": item.seconds,
                "cites": item.cites,
                "metrics": dict(item.metrics),
            }
            for item in findings.results
        ],
    }
