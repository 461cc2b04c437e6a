"""How people find a run: the body of its event. Beside the run's own stream; nothing of it says what the run is."""

from __future__ import annotations

from msgspec import field

from marin.record.bodies.body import Body

RUN_LABELLED = "run.labelled/v1"


class RunLabelled(Body, frozen=True, omit_defaults=True):
    """What somebody says of a run (:mod:`marin.history.labels`). What is None or empty stays as it was. ``archived``: lists leave
    the run out; ``untagged``: tags that are taken off."""

    run: str
    archived: bool | None = None
    description: str | None = None
    tags: dict[str, str] = field(default_factory=dict)
    untagged: list[str] = field(default_factory=list)


LABELS: dict[str, type[Body]] = {RUN_LABELLED: RunLabelled}
