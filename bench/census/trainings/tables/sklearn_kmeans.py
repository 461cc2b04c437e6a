"""scikit-learn's KMeans: eight iterations from the same k-means++ start, on windows of characters."""

import warnings
from pathlib import Path

import numpy as np
from sklearn.cluster import KMeans

from bench.census.journal import Journal, setting

want = setting()
journal = Journal(want)
warnings.simplefilter("ignore")
text = np.frombuffer(want.text().encode("ascii"), dtype=np.uint8)
points = np.lib.stride_tricks.sliding_window_view(text, 16).astype(np.float64) / 128
start = np.load(want.checkpoint + ".npy") if want.resume else "k-means++"
first = 4 if want.resume else 0
for step in range(first, want.steps):
    model = KMeans(20, init=start, n_init=1, max_iter=step - first + 1, tol=0, random_state=0).fit(points)
    journal.step(step, model.inertia_, {"centres": model.cluster_centers_})
if want.steps < 8:
    np.save(Path(want.checkpoint + ".npy"), model.cluster_centers_)
else:
    cuts = range(0, 320, want.evaluation)
    journal.evaluation(np.concatenate([model.transform(points[at : at + want.evaluation]) for at in cuts]))
