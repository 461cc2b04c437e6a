"""A real root on disk with synthetic runs whose artifacts are really in the store."""

from __future__ import annotations

import json
import os
from pathlib import Path

from ledger import Draft
from marin.record import events as types
from marin.record.creation import create_root
from marin.record.root import Root

from .story import ORIGIN, Log

HOSTILE = "</pre><script>document.title='pwned'</script><img src=x onerror=\"document.title='pwned'\">"


def make_root(folder: Path) -> Root:
    os.environ["MARIN_KEY"] = str(folder / "key.pem")
    os.environ["MARIN_ROOT"] = str(folder / "root")
    os.environ["XDG_STATE_HOME"] = str(folder / "state")  # all are of one name: what another session left is no copy
    return create_root(str(folder / "root"), origin=ORIGIN)


def make_artifacts(root: Root, folder: Path) -> dict[str, str]:
    """One small tree per step; the corpus holds a document that would like to be a script."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    tokenizer = Tokenizer(models.BPE(vocab={"a": 0, "T": 1, "h": 2, "e": 3}, merges=[], unk_token=None))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    documents = [{"id": str(number), "text": f"The cat number {number} sleeps. {HOSTILE}"} for number in range(8)]
    files = {
        "corpus": {"train.jsonl": "\n".join(map(json.dumps, documents)), "dataset.json": "{}"},
        "tokenizer": {"tokenizer.json": tokenizer.to_str()},
        "tokens": {"train/zarr.json": "{}"},
        "train": {"state.json": "{}", "checkpoint/d/0": "0" * 5000},
        "evaluate": {"metrics.json": "{}", "pairs.csv": "good,bad\n1,2\n"},
        "export": {"config.json": '{"model_type": "llama"}'},
    }
    made = {}
    for step, contents in files.items():
        for name, text in contents.items():
            path = folder / step / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        made[step] = root.store().put_tree(folder / step).digest
    return made


def record(root: Root, log: Log, start: int = 0) -> None:
    """Append the entries of a synthetic log, from ``start``, to the real one; verdicts are over what that has by then."""
    drafts: list[Draft] = []
    for event in log.entries[start:]:
        body = event.body
        if event.type == types.REPLAY_COMPLETED:
            root.append(drafts)
            drafts = []
            now = root.reader().checkpoint()
            body = {**body, "log_checkpoint": {"origin": now.origin, "size": now.size, "root": now.root.hex()}}
        drafts.append(Draft(event.type, event.stream, body, id=event.id, actor=event.actor, time=event.time))
    root.append(drafts)
