"""Messages as a prompt for people and programs: the model's chat template, which may ask for the time.

A run has the template of its recipe, or the form of the chats that are trained on here without one (:mod:`marin.data.chat`); a
Hugging Face folder its own.
"""

from __future__ import annotations

from pathlib import Path

from jinja2 import nodes

from marin.data.chat import STOPS, TEMPLATE
from marin.data.template import ChatTemplate
from marin.errors import UsageError
from marin.evaluation.subject import Subject
from marin.plugins.serve.wire import ContentForm


def content_form(template: ChatTemplate) -> ContentForm:
    """By what the template says, as vLLM finds it: parts where it walks over a message's ``content``; texts beside them where it
    asks whether that is a string."""
    tree, names = template.tree(), {"content"}

    def is_content(node: nodes.Node | None) -> bool:
        match node:
            case nodes.Name(name=name):
                return name in names
            case nodes.Getattr(attr="content") | nodes.Getitem(arg=nodes.Const(value="content")):
                return True
            case nodes.Filter(node=inner) | nodes.Getitem(node=inner, arg=nodes.Slice()):
                return is_content(inner)
        return False

    assigned = [(one.target, one.node) for one in tree.find_all(nodes.Assign)]
    while new := {to.name for to, one in assigned if isinstance(to, nodes.Name) and is_content(one)} - names:
        names |= new
    parts = any(is_content(loop.iter) for loop in tree.find_all(nodes.For))
    asks = any(test.name == "string" and is_content(test.node) for test in tree.find_all(nodes.Test))
    return ContentForm(asks or not parts, parts)


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
