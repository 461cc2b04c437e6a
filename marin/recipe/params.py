"""Reading ``params.yaml``: the composed recipe that every stage of the pipeline is given, as DVC reads the same file."""

from __future__ import annotations

from pathlib import Path

from marin.errors import UsageError
from marin.recipe.form.data_rules import with_data_rules
from marin.recipe.form.yaml import MOST_BYTES, NotYaml, read_yaml
from marin.recipe.schema import Recipe, from_mapping


def load_params(path: Path) -> Recipe:
    """The checked recipe in ``path``.

    Raises:
        UsageError: the file is missing, is not YAML, or a value in it is unknown, of the wrong type or out of range;
            the message holds the path of the value and what is allowed.
    """
    where = path.name
    try:
        with path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
        text = data.decode("utf-8")
    except (FileNotFoundError, IsADirectoryError):
        raise UsageError(
            "no parameters",
            where=str(path),
            expected="a params.yaml",
            found="no such file",
            cure="run this in the project's folder, or name the file with --params",
        ) from None
    except UnicodeDecodeError as error:
        raise UsageError(
            "parameters are not UTF-8",
            where=where,
            found=f"byte {error.start}: {error.reason}",
            cure="save the file as UTF-8",
        ) from None
    if len(data) > MOST_BYTES:
        raise UsageError(
            "parameters are too long",
            where=where,
            expected=f"at most {MOST_BYTES} bytes",
            found="more",
            cure="name large values by files; reading YAML takes time that grows with its square",
        )
    try:
        value = read_yaml(text)
    except NotYaml as error:
        raise UsageError(
            "parameters are not YAML",
            where=f"{where}:{error.line}:{error.column}" if error.line else where,
            expected="a mapping of sections",
            found=error.problem,
            cure="correct that line, or compose the file again with `dvc exp run`",
        ) from None
    return from_mapping(with_data_rules(value) if isinstance(value, dict) else value, where=where)
