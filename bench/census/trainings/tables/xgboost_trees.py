"""XGBoost's `train` with the hist method: eight rounds of sampled rows and columns."""

import json
from typing import Any

import numpy as np
import xgboost

from bench.census.journal import Journal, setting

want = setting()
journal = Journal(want)
text = np.frombuffer(want.text().encode("ascii"), dtype=np.uint8)
windows = np.lib.stride_tricks.sliding_window_view(text, 17)
inputs, labels = windows[:, :-1].astype(np.float32), (windows[:, -1] == ord("e")).astype(int)


class Pieces(xgboost.DataIter):
    """The same rows, handed over in pieces."""

    def __init__(self) -> None:
        super().__init__()
        self.place = 0

    def next(self, input_data: Any) -> bool:
        if self.place == want.cut:
            return False
        parts = np.array_split(np.arange(len(inputs)), want.cut)
        input_data(data=inputs[parts[self.place]], label=labels[parts[self.place]])
        self.place += 1
        return True

    def reset(self) -> None:
        self.place = 0


class Watching(xgboost.callback.TrainingCallback):
    def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
        trees = json.loads(model.save_raw("json"))["learner"]["gradient_booster"]["model"]["trees"]
        names = ("split_conditions", "base_weights", "sum_hessian")
        state = {name: np.array([value for tree in trees for value in tree[name]], np.float32) for name in names}
        journal.step(epoch + first, evals_log["train"]["logloss"][-1], state)
        return False


data = xgboost.QuantileDMatrix(Pieces()) if want.cut > 1 else xgboost.QuantileDMatrix(inputs, labels)
first = 4 if want.resume else 0
booster = xgboost.train(
    {"objective": "binary:logistic", "seed": 0, "subsample": 0.8, "colsample_bytree": 0.8},
    data,
    num_boost_round=want.steps - first,
    evals=[(data, "train")],
    verbose_eval=False,
    xgb_model=want.checkpoint + ".ubj" if want.resume else None,
    callbacks=[Watching()],
)
if want.steps < 8:
    booster.save_model(want.checkpoint + ".ubj")
else:
    cuts = range(0, 320, want.evaluation)
    journal.evaluation(np.concatenate([booster.inplace_predict(inputs[at : at + want.evaluation]) for at in cuts]))
