"""scikit-learn's MLPClassifier by `partial_fit`, on windows of characters."""

from pathlib import Path

import joblib
import numpy as np
from sklearn.neural_network import MLPClassifier

from bench.census.journal import Journal, setting

want = setting()
journal = Journal(want)
text = np.frombuffer(want.text().encode("ascii"), dtype=np.uint8)
windows = np.lib.stride_tricks.sliding_window_view(text, 17)[::5]
inputs, labels = windows[:, :-1] / 128, windows[:, -1]
model = MLPClassifier((256, 128), random_state=0, learning_rate_init=1e-3, batch_size=256 // want.cut)
first = 0
if want.resume:
    model, first = joblib.load(want.checkpoint), 4
for step in range(first, want.steps):
    part = slice(256 * step, 256 * step + 256)
    model.partial_fit(inputs[part], labels[part], classes=np.unique(labels))
    journal.step(step, model.loss_, {"coefs": model.coefs_, "intercepts": model.intercepts_})
if want.steps < 8:
    joblib.dump(model, Path(want.checkpoint))
else:
    cuts = range(0, 32, want.evaluation)
    journal.evaluation(np.concatenate([model.predict_proba(inputs[start : start + want.evaluation]) for start in cuts]))
