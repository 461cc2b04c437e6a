"""The lineage of a run on one page: from the corpus to the model, with digests, and what the data looks like.

A graph drawn as SVG (one node a step, one edge an input), a part for each step below it, and readable samples: the first
documents of the corpus, and the same text cut into tokens. No scripts and nothing loaded: one file that can be mailed.
Samples are read from the store and verified on the way; where the bytes are not here the page says so.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ledger import LedgerError, Store
from marin.tracking.markup import Child, Html, element, page
from marin.tracking.page import STATE_CLASSES, STYLE, code, verdict
from marin.tracking.record import RunRecord, StepRecord, overall

DOCUMENTS, LETTERS, TOKENIZED = 5, 600, 2
COLUMN, ROW, WIDTH, HEIGHT, MARGIN, HEADROOM, LIFT = 170, 84, 140, 52, 12, 48, 30

LINEAGE_STYLE = """
.graph{overflow-x:auto;margin:.6rem 0}.graph svg{max-width:none}.node rect{fill:var(--card);stroke:var(--line)}
.node text{fill:var(--ink);font:13px system-ui,sans-serif}.node .digest{fill:var(--soft);font:11px ui-monospace,monospace}
.node:focus-visible rect,.node:hover rect{stroke:#0969da;stroke-width:2}.edge{stroke:var(--soft);fill:none}
.node.good rect{stroke:var(--good)}.node.bad rect{stroke:var(--bad)}.node.mid rect{stroke:var(--mid)}
section:target{outline:2px solid #0969da;outline-offset:6px;border-radius:4px}
.token{background:var(--card);border-radius:3px;box-shadow:inset 0 0 0 1px var(--line);white-space:pre-wrap}
.token:nth-child(even){background:none}
"""


@dataclass(frozen=True)
class Samples:
    """What is shown of the data: documents, and the first of them cut into tokens; ``missing`` says why there is none."""

    documents: Sequence[str] = ()
    tokens: Sequence[Sequence[str]] = ()
    missing: str = ""


def read_samples(record: RunRecord, store: Store) -> Samples:
    """The first documents of the run's corpus and their tokens, from verified bytes."""
    try:
        documents = list(_documents(record, store))
    except LedgerError as error:
        return Samples(missing=str(error))
    try:
        return Samples(documents, _tokenized(record, store, documents[:TOKENIZED]))
    except (LedgerError, ValueError) as error:
        return Samples(documents, missing=str(error))


def lineage_page(record: RunRecord, origin: str, samples: Samples) -> bytes:
    """The page as bytes that are the same for the same events and artifacts."""
    steps = record.ordered_steps()
    checked = overall(record.replays[-1][3].verdicts) if record.replays else None
    return page(
        f"lineage of run {record.run}", STYLE + LINEAGE_STYLE,
        element("main",
                element("h1", f"Lineage of run {record.run}"),
                element("p", f"{record.pipeline}, begun {record.started[:19].replace('T', ' ')} UTC by {record.actor}, ledger ",
                        code(origin)),
                element("p", "Verified: ", verdict(checked) if checked else "never"),
                element("div", _graph(steps), class_="graph"),
                [_section(record, step, samples) for step in steps]),
    )


def _documents(record: RunRecord, store: Store) -> Iterator[str]:
    corpus = record.steps.get("corpus")
    if corpus is None or corpus.output is None:
        return
    with store.open_file(corpus.output.artifact, "train.jsonl") as stream:
        for _, line in zip(range(DOCUMENTS), stream, strict=False):
            try:
                document = json.loads(line)
            except ValueError:
                document = None
            found = document.get("text") if isinstance(document, dict) else None
            yield found[:LETTERS] if isinstance(found, str) else "(not a document)"


def _tokenized(record: RunRecord, store: Store, documents: Sequence[str]) -> list[list[str]]:
    """Each document as the pieces of text that its tokens stand for."""
    made = record.steps.get("tokenizer")
    if made is None or made.output is None or not documents:
        return []
    with store.open_file(made.output.artifact, "tokenizer.json") as stream:
        text = stream.read().decode("utf-8")
    # Here: a library of some 50 ms that only this sample needs.
    from tokenizers import Tokenizer

    try:
        tokenizer = Tokenizer.from_str(text)
    except Exception as error:  # the library raises bare Exception for a file that is no tokenizer
        raise ValueError(f"the tokenizer cannot be read: {error}") from error
    return [[document[start:end] for start, end in tokenizer.encode(document, add_special_tokens=False).offsets]
            for document in documents]


def _columns(steps: Sequence[StepRecord]) -> dict[str, int]:
    """For each step, the length of the longest way to it from a step without inputs."""
    known = {step.name: step for step in steps}
    depth: dict[str, int] = {}

    def of(name: str, above: tuple[str, ...]) -> int:
        if name not in depth:
            parents = [parent for parent in known[name].inputs if parent in known and parent not in above]
            depth[name] = 1 + max((of(parent, (*above, name)) for parent in parents), default=-1)
        return depth[name]

    for step in steps:
        of(step.name, ())
    return depth


def _graph(steps: Sequence[StepRecord]) -> Html:
    depth = _columns(steps)
    rows: dict[int, int] = {}
    place: dict[str, tuple[int, int]] = {}
    for step in steps:
        column = depth[step.name]
        # Odd columns stand lower, and edges across several columns rise, so that none runs behind a node.
        top = HEADROOM + rows.get(column, 0) * ROW + (column % 2) * ROW // 2
        place[step.name] = (MARGIN + column * COLUMN, MARGIN + top)
        rows[column] = rows.get(column, 0) + 1
    width = max((x for x, _ in place.values()), default=0) + WIDTH + MARGIN
    height = max((y for _, y in place.values()), default=0) + HEIGHT + MARGIN
    edges = [_edge(place[source], place[step.name]) for step in steps for source in step.inputs if source in place]
    return element("svg", edges, [_node(step, *place[step.name]) for step in steps], width=width, height=height,
                   viewBox=f"0 0 {width} {height}", role="img", aria_label="steps of the run and what each is made of")


def _edge(source: tuple[int, int], target: tuple[int, int]) -> Html:
    x, y, u, v = source[0] + WIDTH, source[1] + HEIGHT // 2, target[0], target[1] + HEIGHT // 2
    bend = max(30, (u - x) // 3)
    lift = LIFT * max(0, (target[0] - source[0]) // COLUMN - 1)
    return element("path", d=f"M{x} {y}C{x + bend} {y - lift} {u - bend} {v - lift} {u} {v}", class_="edge")


def _node(step: StepRecord, x: int, y: int) -> Html:
    digest = step.output.digest.removeprefix("sha256:")[:12] if step.output else step.state
    return element("a", element("rect", x=x, y=y, width=WIDTH, height=HEIGHT, rx=8),
                   element("text", step.name, x=x + 10, y=y + 21), element("text", digest, x=x + 10, y=y + 40, class_="digest"),
                   href=f"#{step.name}", class_=f"node {STATE_CLASSES.get(step.state, 'mid')}",
                   aria_label=f"{step.name}, {step.state}")


def _section(record: RunRecord, step: StepRecord, samples: Samples) -> Html:
    rows: list[tuple[str, Child]] = [("state", element("span", step.state, class_=STATE_CLASSES.get(step.state, "mid")))]
    if step.output is not None:
        rows += [("content", code(step.output.digest)), ("stored as", code(step.output.artifact)),
                 ("bytes", f"{step.output.size:,}"), ("kind", step.output.kind)]
    rows += [(f"from {name}", code(digest)) for name, digest in step.inputs.items()]
    rows += [("identity", code(step.identity)), ("event", str(step.index))]
    if step.seconds is not None:
        rows.append(("time", f"{step.seconds:.1f} s"))
    if step.completed_at is not None:
        rows.append(("taken over from", f"event {step.completed_at}"))
    if step.error:
        rows.append(("error", step.error))
    rows += [(name, f"{value:.6g}") for name, value in sorted(step.metrics.items())]
    body = element("tbody", [element("tr", element("th", name, scope="row"), element("td", value)) for name, value in rows])
    return element("section", element("h2", step.name), element("div", element("table", body), class_="wide"),
                   _sample(step, samples), _states(record) if step.name == "train" else None, id=step.name)


def _sample(step: StepRecord, samples: Samples) -> Html | None:
    if step.name == "corpus":
        if not samples.documents:
            return element("p", samples.missing, class_="soft") if samples.missing else None
        return element("div", element("p", "First documents", class_="soft"),
                       [element("pre", text) for text in samples.documents])
    if step.name == "tokens":
        if not samples.tokens:
            return element("p", samples.missing, class_="soft") if samples.missing else None
        shown = [element("pre", [element("span", piece, class_="token") for piece in pieces]) for pieces in samples.tokens]
        return element("div", element("p", "The same text, cut into tokens", class_="soft"), shown)
    return None


def _states(record: RunRecord) -> Html | None:
    """The chain of states: each segment begins with the state that the one before left."""
    if not record.segments:
        return None
    last = record.segments[-1]
    items = [*((part.start, part.start_state) for part in record.segments), (last.end, last.end_state)]
    return element("details", element("summary", f"States ({len(items)})"),
                   element("ol", [element("li", f"before train step {step}: ", code(state)) for step, state in items]))
