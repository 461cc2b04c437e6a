"""Steps that change a text and remove nothing: damaged encodings repaired by ftfy, personal data masked as Dolma does it."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from marin.plugins.collections.document import Document, Judgement
from marin.plugins.collections.steps.deciding import changed

EMAIL = re.compile(
    r"(?<![\w.+-])[A-Za-z0-9][\w.+-]{0,63}@(?:[A-Za-z0-9][A-Za-z0-9-]{0,62}\.){1,8}[A-Za-z]{2,24}(?![\w-])"
)
PHONE = re.compile(
    r"(?<![\w.+(/-])(?:\+?1[ .-]?)?(?:\([2-9][0-9]{2}\)[ ]?|[2-9][0-9]{2}[ .-])[2-9][0-9]{2}[ .-][0-9]{4}(?![\w-])"
)
ADDRESS = re.compile(r"(?<![\w.])(?:[0-9]{1,3}\.){3}[0-9]{1,3}(?!\.?\w)")


class Repair(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Text that was decoded by a wrong encoding, entities that were left, line ends: ftfy (Speer 2019)."""

    def make(self) -> Fix:
        """The step."""
        import ftfy

        config = ftfy.TextFixerConfig(
            unescape_html=False, uncurl_quotes=False, fix_latin_ligatures=False, explain=False
        )
        return Fix(ftfy.fix_text, config)


class Fix:
    """The step ``encoding``."""

    def __init__(self, fix: Any, config: Any) -> None:
        self._fix, self._config = fix, config

    def judge(self, document: Document) -> Judgement:
        text = document.text if document.text.isascii() else str(self._fix(document.text, self._config))
        return changed(document, text, "encoding", "encoding", before=len(document.text), after=len(text))

    def measured(self, document: Document) -> Mapping[str, Any]:
        return {}


class Mask(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Addresses of mail, telephone numbers in the form of North America and public IPv4 addresses become Dolma's marks."""

    emails: bool = True
    phones: bool = True
    addresses: bool = True

    def make(self) -> Masking:
        """The step."""
        return Masking(self)


class Masking:
    """The step ``pii``."""

    def __init__(self, settings: Mask) -> None:
        self._settings = settings

    def judge(self, document: Document) -> Judgement:
        """See :class:`marin.plugins.collections.document.Step`. The evidence has counts alone: what is masked is not told
        again."""
        text, emails, phones, addresses = document.text, 0, 0, 0
        if self._settings.emails and "@" in text:
            text, emails = EMAIL.subn("|||EMAIL_ADDRESS|||", text)
        if self._settings.phones:
            text, phones = PHONE.subn("|||PHONE_NUMBER|||", text)
        if self._settings.addresses:
            before = text.count("|||IP_ADDRESS|||")
            text = ADDRESS.sub(_address, text)
            addresses = text.count("|||IP_ADDRESS|||") - before
        return changed(document, text, "pii", "pii", emails=emails, phones=phones, addresses=addresses)

    def measured(self, document: Document) -> Mapping[str, Any]:
        return {"emails": 0, "phones": 0, "addresses": 0}


def _address(found: re.Match[str]) -> str:
    try:
        return "|||IP_ADDRESS|||" if ipaddress.IPv4Address(found[0]).is_global else found[0]
    except ValueError:
        return found[0]
