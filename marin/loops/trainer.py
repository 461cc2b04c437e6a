"""A callback for Hugging Face's trainer: what it logs goes into a run of the ledger.

    Trainer(..., args=TrainingArguments(logging_steps=1, ...), callbacks=[MarinCallback("mine")])

Every train step has to be logged (``logging_steps=1``), because the ledger has each step's loss, NaN too. The state is told
when the trainer saves a checkpoint, and at the end.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState

from marin.errors import UsageError
from marin.loops.loop import Loop, start_run
from marin.loops.tensors import scalar


class MarinCallback(TrainerCallback):  # type: ignore[misc]
    """Begins a run when training begins, and completes it when it ends; ``run`` is that run."""

    run: Loop | None = None

    def __init__(self, name: str = "", *, recipe: Mapping[str, Any] | None = None, root: str | None = None) -> None:
        self._name, self._recipe, self._root = name, dict(recipe or {}), root
        self._last = -1
        """The last train step of the run that has a loss."""

    def on_train_begin(self, args: Any, state: TrainerState, control: TrainerControl, **given: Any) -> None:
        """Begin the run, where this process leads: of several that train as one all call this. The trainer's arguments are its
        recipe, beside what was given. Its filter of losses that are NaN or
        infinite is switched off: where every step is logged, it logs 0 in their place.

        Raises:
            UsageError: not every train step is logged.
        """
        strategy = getattr(args, "logging_strategy", "steps")
        found = {"logging_strategy": str(getattr(strategy, "value", strategy)), "logging_steps": args.logging_steps}
        if found != {"logging_strategy": "steps", "logging_steps": 1}:
            raise UsageError(
                "not every train step is logged",
                where="TrainingArguments",
                expected='logging_strategy="steps", logging_steps=1',
                found=", ".join(f"{name}={value}" for name, value in found.items()),
                cure="the ledger has the loss of each step: set them so",
            )
        args.logging_nan_inf_filter = False
        self.run, self._last = None, -1
        if not state.is_world_process_zero:
            return
        told = {**_plain_arguments(args), **self._recipe}
        self.run = start_run(self._name, recipe=told, root=self._root)

    def on_log(
        self,
        args: Any,
        state: TrainerState,
        control: TrainerControl,
        logs: Mapping[str, Any] | None = None,
        **given: Any,
    ) -> None:
        """A train step that has a loss; other logs are measurements."""
        if self.run is None or logs is None:
            return
        numbers = {name: found for name, value in logs.items() if (found := scalar(value)) is not None}
        numbers.pop("loss", None)
        loss = logs.get("loss")
        step = state.global_step - 1
        if loss is None or step <= self._last:
            self.run.tell(max(step, 0), None, None, numbers)
            return
        self._last = step
        self.run.tell(step, loss, None, numbers)

    def on_save(self, args: Any, state: TrainerState, control: TrainerControl, **given: Any) -> None:
        """The state after the last train step, where the trainer saved one."""
        self._state(given.get("model"))

    def on_epoch_end(self, args: Any, state: TrainerState, control: TrainerControl, **given: Any) -> None:
        """The state after the last train step, before the trainer loads its best one in place of it."""
        if control.should_training_stop:
            self._state(given.get("model"))

    def on_train_end(self, args: Any, state: TrainerState, control: TrainerControl, **given: Any) -> None:
        """The run's end, and the last state where no other model stands in place of it."""
        if self.run is not None:
            self._state(None if args.load_best_model_at_end else given.get("model"))
            self.run.finish()

    def _state(self, model: Any) -> None:
        if self.run is not None and model is not None and self.run.pending:
            self.run.state(model.state_dict())


def _plain_arguments(args: Any) -> dict[str, Any]:
    """The trainer's arguments that are plain values, or mappings and lists of them, without its folders and its host."""
    values = _without_places(args.to_dict()) if hasattr(args, "to_dict") else {}
    return {name: value for name, value in values.items() if _is_plain(value) and value not in (None, [], {})}


def _without_places(value: Any) -> Any:
    """Without folders, tokens and what is of the hub, however deep they lie: a log keeps what it was told for good."""
    if isinstance(value, Mapping):
        kept = {name: item for name, item in value.items() if not re.search("hub|_(dir|token)$", str(name))}
        return {name: _without_places(item) for name, item in kept.items()}
    return list(map(_without_places, value)) if isinstance(value, list | tuple) else value


def _is_plain(value: object) -> bool:
    if isinstance(value, Mapping):
        return all(isinstance(name, str) and _is_plain(item) for name, item in value.items())
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, str | int | float | bool)
