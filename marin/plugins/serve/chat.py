"""Messages as a prompt for people and programs: the model's chat template, which may ask for the time.

A run has the template of its recipe, or the form of the chats that are trained on here without one (:mod:`marin.data.chat`); a
Hugging Face folder its own.
"""

from __future__ import annotations

from pathlib import Path

from marin.data.chat import STOPS, TEMPLATE
from marin.data.template import ChatTemplate
from marin.errors import UsageError
from marin.evaluation.subject import Subject


def template_for(subject: Subject, file: Path | None = None) -> ChatTemplate | None:
    """The template of ``file`` if it is given, otherwise that of the model.

    Raises:
        UsageError: it cannot be read.
    """
    if file is not None:
        try:
            with file.open(encoding="utf-8") as opened:
                text = opened.read()
        except (OSError, ValueError) as error:
            raise UsageError(
                "a chat template that cannot be read", where=str(file), expected="a text", found=str(error)[:200]
            ) from None
        stops = STOPS if text == TEMPLATE else ()
        return ChatTemplate(text, subject.special, where=str(file), stops=stops, clock=True)
    known = subject.template
    if known is None:
        return None
    return ChatTemplate(known.text, known.variables, where="the model's chats", stops=known.stops, clock=True)
