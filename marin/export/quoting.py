"""YAML for others' programs: what is a text here is a text to a reader of YAML 1.1 and of 1.2.

PyYAML writes by 1.1, where ``1e3``, ``12345e67`` and ``0o17`` are texts and need no quotes. To readers of 1.2 (DVC,
the Hub) they are numbers: an md5 of digits and one ``e`` is infinity.
"""

from __future__ import annotations

import re

import yaml


class _Dumper(yaml.SafeDumper):
    """Puts quotes also around texts that only YAML 1.2 takes for numbers."""


_Dumper.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"[-+]?(?:[0-9][0-9_]*\.?[0-9_]*|\.[0-9_]+)(?:[eE][-+]?[0-9_]+)?$|[-+][0-9_]+$|[-+]?0o[0-7_]+$"),
    list("-+.0123456789"),
)


def _quoted(dumper: yaml.SafeDumper, text: str) -> yaml.Node:
    # Line ends to 1.1 and letters to 1.2: escaped, which only double quotes can.
    return dumper.represent_scalar(
        "tag:yaml.org,2002:str", text, style='"' if re.search("[\x85\u2028\u2029]", text) else None
    )


_Dumper.add_representer(str, _quoted)


def yaml_of(document: object) -> str:
    """A document of mappings, lists, texts, numbers and truth values, in the order that it has."""
    return yaml.dump(document, Dumper=_Dumper, sort_keys=False, allow_unicode=True)
