"""LightGBM's `train` with its defaults: eight rounds, the state is the text of the model."""

from pathlib import Path
from typing import Any

import lightgbm
import numpy as np

from bench.census.journal import Journal, setting

want = setting()
journal = Journal(want)
text = np.frombuffer(want.text().encode("ascii"), dtype=np.uint8)
windows = np.lib.stride_tricks.sliding_window_view(text, 17)
inputs, labels = windows[:, :-1].astype(np.float64), (windows[:, -1] == ord("e")).astype(int)


class Rows(lightgbm.Sequence):
    """The same rows, read in two pieces."""

    batch_size = 1024

    def __init__(self, rows: Any) -> None:
        self.rows = rows

    def __getitem__(self, place: Any) -> Any:
        return self.rows[place]

    def __len__(self) -> int:
        return len(self.rows)


pieces = [Rows(part) for part in np.array_split(inputs, want.cut)] if want.cut > 1 else inputs
data = lightgbm.Dataset(pieces, label=labels, free_raw_data=False)
first = 4 if want.resume else 0


def watch(env: Any) -> None:
    booster = env.model
    trees = booster.dump_model()["tree_info"]
    leaves = [value for tree in trees for value in numbers(tree["tree_structure"])]
    (_, _, loss, _) = env.evaluation_result_list[0]
    journal.step(env.iteration, loss, {"leaves and thresholds": np.array(leaves)})


def numbers(node: Any) -> list[float]:
    if "leaf_value" in node:
        return [node["leaf_value"]]
    return [float(node["threshold"]), *numbers(node["left_child"]), *numbers(node["right_child"])]


settings = {
    "objective": "binary",
    "verbose": -1,
    "seed": 0,
    "bagging_fraction": 0.8,
    "bagging_freq": 1,
    "feature_fraction": 0.8,
}
booster = lightgbm.train(
    settings,
    data,
    num_boost_round=want.steps - first,
    valid_sets=[data],
    init_model=want.checkpoint if want.resume else None,
    callbacks=[watch],
)
if want.steps < 8:
    booster.save_model(Path(want.checkpoint))
else:
    cuts = range(0, 320, want.evaluation)
    journal.evaluation(np.concatenate([booster.predict(inputs[at : at + want.evaluation]) for at in cuts]))
