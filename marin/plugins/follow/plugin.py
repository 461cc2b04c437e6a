"""What this plugin adds: who follows a run while its training goes on, for ``marin verify --follow``. jax begins under the
arithmetic contract: it is imported when a run is followed."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from marin.plugins.follow.stop_request import StopRequests, no_key

if TYPE_CHECKING:
    from marin.record.root import Root
    from marin.verify.verification import Options, Verification

__all__ = ["follow", "no_key"]


def follow(
    root: Root, run: str, options: Options, *, only: Collection[str], stop: bool, back: bool, say: Callable[[str], None]
) -> Verification:
    """Follow a run to its end; the verification that has the last word. ``stop``, ``back``: what its training is asked at the
    first thing that does not hold.

    Raises:
        UsageError: the training is not ours to stop.
    """
    from marin.plugins.follow import follower

    requests = StopRequests.of(root, back=back) if stop or back else None
    return follower.follow(root, run, options, only=only, requests=requests, say=say)
