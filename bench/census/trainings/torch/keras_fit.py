"""A model of the next character by Keras, `compile` and `fit`; the backend is what KERAS_BACKEND names."""

from typing import Any

import keras
import numpy as np

from bench.census.journal import Journal, setting

CONTEXT = 16
want = setting()
journal = Journal(want)
keras.utils.set_random_seed(0)
if want.devices > 1:
    keras.distribution.set_distribution(keras.distribution.DataParallel())

text = np.frombuffer(want.text().encode("ascii"), dtype=np.uint8).astype("int32")
windows = np.lib.stride_tricks.sliding_window_view(text, CONTEXT + 1)[::300][:32]
inputs, labels = windows[:, :-1], windows[:, -1]


class Watching(keras.callbacks.Callback):
    microbatches, steps = 0, 4 if want.resume else 0

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.microbatches += 1
        if self.microbatches % want.cut == 0:
            state = {variable.path: keras.ops.convert_to_numpy(variable) for variable in self.model.trainable_variables}
            journal.step(self.steps, logs["loss"], state)
            self.steps += 1


if want.resume:
    model = keras.models.load_model(want.checkpoint + ".keras")
else:
    model = keras.Sequential(
        [
            keras.layers.Embedding(128, 32),
            keras.layers.LSTM(64, return_sequences=True),
            keras.layers.LayerNormalization(),
            keras.layers.Flatten(),
            keras.layers.Dense(128),
        ]
    )
    accumulate = {"gradient_accumulation_steps": want.cut} if want.cut > 1 else {}
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer=keras.optimizers.Adam(3e-3, **accumulate), loss=loss)

epochs = want.steps // 2
size = 16 // want.cut
model.fit(
    inputs,
    labels,
    batch_size=size,
    epochs=epochs,
    initial_epoch=2 if want.resume else 0,
    verbose=0,
    callbacks=[Watching()],
)
if want.steps < 8:
    model.save(want.checkpoint + ".keras")
else:
    logits = model.predict(inputs, batch_size=want.evaluation, verbose=0)
    journal.evaluation(logits[np.arange(len(logits)), labels])
