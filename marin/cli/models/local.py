"""A model that a command line names: a run, a folder, or one of the Hub, which is pulled."""

from __future__ import annotations


def local(run: str) -> str:
    """``run``, or the folder that a model of the Hub (``hf:OWNER/NAME@COMMIT``) was pulled into."""
    if not run.startswith("hf:"):
        return run
    from marin.export.hub import pull
    from marin.process.cache import own_folder

    return str(pull(run, own_folder("hub")))
