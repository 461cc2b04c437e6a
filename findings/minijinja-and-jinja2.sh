#!/usr/bin/env bash
# One chat template makes other text in minijinja (which servers in Rust use) than in Jinja2 with the settings of transformers: text and
# mappings are no sequences, line ends of Windows stay, the line end after {% raw %} goes, a key called items hides the method, NaN in
# tojson is null, and a loop over none is empty where Jinja2 refuses.
#
#   bash findings/minijinja-and-jinja2.sh [VERSION]
#
# Installs the published packages into a temporary folder (Python 3.12, a minute), prints the versions and what it sees. Exit status
# 0: as described; 1: the behaviour has changed; another: it could not be tried.
set -euo pipefail

version=${1:-3.0.5}
folder=$(mktemp -d "${TMPDIR:-/tmp}/minijinja-and-jinja2.XXXXXX")
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3.12}" -m venv "$folder/venv" >&2
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check "minijinja==$version" "jinja2==3.1.6" >&2
cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON'
import json
import sys
from importlib.metadata import version

import minijinja
from jinja2.sandbox import ImmutableSandboxedEnvironment

print(f"minijinja {version('minijinja')}, jinja2 {version('jinja2')}, Python {sys.version.split()[0]}")
jinja = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
jinja.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False)  # as transformers has it
other = minijinja.Environment(pycompat=True, trim_blocks=True, lstrip_blocks=True)
CONTEXT = {"text": "hi", "tool": {"name": "f", "items": "x"}, "nothing": None, "score": float("nan")}
TEMPLATES = {  # template, what Jinja2 and minijinja make of it
    "{% if text is sequence %}parts{% else %}text{% endif %}": ("parts", "text"),
    "{% if tool is sequence %}parts{% else %}one{% endif %}": ("parts", "one"),
    "a\r\n{{ text }}\r\nb": ("a\nhi\nb", "a\r\nhi\r\nb"),
    "{% for part in nothing %}x{% endfor %}": ("TypeError", ""),
    "{% raw %}\n<think>{% endraw %}": ("\n<think>", "<think>"),
    "{% if tool.items is string %}key{% else %}method{% endif %}": ("method", "key"),
    "{{ score | tojson }}": ("NaN", "null"),
    "{{ 1e16 }}": ("1e+16", "10000000000000000.0"),
    "{{ -7 // 2 }} {{ true }} {{ none }} {{ [1.0, 'a'] }}": ("-4 True None [1.0, 'a']",) * 2,
}
changed = []


def rendered(render):
    try:
        return render()
    except (TypeError, minijinja.TemplateError) as error:
        return type(error).__name__


for template, expected in TEMPLATES.items():
    outputs = (
        rendered(lambda template=template: jinja.from_string(template).render(**CONTEXT)),
        rendered(lambda template=template: other.render_str(template, **CONTEXT)),
    )
    print(f"  {template!r:66}Jinja2 {outputs[0]!r}, minijinja {outputs[1]!r}")
    if outputs != expected:
        changed.append(f"{template!r}: {outputs}")
print("\n".join(["CHANGED", *changed]) if changed else "as described")
sys.exit(1 if changed else 0)
PYTHON
