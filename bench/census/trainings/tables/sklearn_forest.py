"""scikit-learn's RandomForestClassifier, grown by `warm_start` in eight pieces, each of five trees; `n_jobs` are its devices."""

from pathlib import Path

import joblib
import numpy as np
from sklearn.ensemble import RandomForestClassifier
from sklearn.metrics import log_loss

from bench.census.journal import Journal, setting

want = setting()
journal = Journal(want)
text = np.frombuffer(want.text().encode("ascii"), dtype=np.uint8)
windows = np.lib.stride_tricks.sliding_window_view(text, 9)[::4]
inputs, labels = windows[:, :-1], windows[:, -1] == ord("e")
model = RandomForestClassifier(0, random_state=0, max_depth=8, warm_start=True, n_jobs=want.devices)
first = 0
if want.resume:
    model, first = joblib.load(want.checkpoint), 4
for step in range(first, want.steps):
    for count in np.arange(1, want.cut + 1) * 5 // want.cut + 5 * step:
        model.set_params(n_estimators=int(count)).fit(inputs, labels)
    trees = {f"{n:02}": {"threshold": tree.tree_.threshold, "value": tree.tree_.value} for n, tree in enumerate(model)}
    journal.step(step, log_loss(labels, model.predict_proba(inputs)), {"trees": trees})
if want.steps < 8:
    joblib.dump(model, Path(want.checkpoint))
else:
    cuts = range(0, 320, want.evaluation)
    journal.evaluation(np.concatenate([model.predict_proba(inputs[at : at + want.evaluation]) for at in cuts]))
