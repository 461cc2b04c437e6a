"""pyproject.toml says what the product imports or runs, and nothing else: each line is used, each import has a line.

Names of other packages that are private there may change without notice. All of them that this project uses stand here,
with the reason; one that is new, gone, or no longer there fails.
"""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from importlib.metadata import packages_distributions
from importlib.util import find_spec
from pathlib import Path

import pytest

from bench.house import gauges
from tests.sources import nodes, parsed_once

__all__ = ["parsed_once"]

PROJECT = Path(__file__).resolve().parent.parent
OURS = ("ledger", "marin", "experiments")

NOT_IMPORTED = {
    "dvc": "the program: dvc.yaml",
    "dvc-gs": "gs:// as a remote of DVC",
    "hydra-optuna-sweeper": "Hydra's plugin for sweeps that search: hydra/sweeper=optuna",
    "flatbuffers": "the form of the programs that jax.export keeps",
    "gcsfs": "gs:// for fsspec, which Levanter and DVC open paths with; the pin fits dvc-gs",
    "jaxlib": "the compiler of jax, part of a run's identity",
    "marin-finelog": "Levanter's own family",
    "marin-finestore": "Levanter's own family",
    "marin-fray": "Levanter's own family",
    "marin-iris": "Levanter's own family",
    "marin-iris-native": "Levanter's own family",
    "marin-rigging": "Levanter's own family",
    "marin-zephyr": "Levanter's own family",
    "mpld3": "carries d3, which the data browser inlines: a file of the package is read",
    "pyopenssl": "model-signing imports it without saying so",
    "uv": "the program: .ci/environment",
}
NOT_REQUIRED = {
    "PIL": "pillow comes with matplotlib, whose pictures it writes",
    "fastapi": "comes with mlflow, whose server it is made of",
    "google": "protobuf comes with in-toto-attestation and wandb, whose messages it holds",
    "huggingface_hub": "comes with transformers, whose hub it speaks to",
    "jmp": "comes with marin-levanter, whose precision policies it holds",
    "lm_eval": "the extra `eval`: requirements-evaluation.lock",
    "markupsafe": "comes with jinja2, whose escaping it is",
    "mlperf_logging": "docker/requirements-mlperf.lock: only `marin export --mlperf` needs it",
    "omegaconf": "comes with hydra-core, whose configurations it holds",
    "optuna": "comes with hydra-optuna-sweeper, which it does the searching for",
    "sqlalchemy": "comes with mlflow, whose database it is",
    "starlette": "comes with mlflow, whose server is made of it",
    "uvicorn": "comes with mlflow, whose server it runs",
}
"""What is imported and comes with something that is required."""

PRIVATE = {
    "atexit._run_exitfuncs": "the end of a process (process/interpreter.py)",
    "hashlib._Hash": "a type without a public name, for annotations",
    "hydra._internal.config_loader_impl.ConfigLoaderImpl._apply_overrides_to_config": "as Hydra's own command line does",
    "jax._src.config": "settings that change what is traced, as they are while a function is read (exact/tracing.py)",
    "jax._src.distributed": "words between the processes of one training (training/runtime/hosts.py)",
    "jax._src.interpreters.mlir._platform_specific_lowerings": "products lowered in one form (training/products.py)",
    "jax._src.lax.linalg": "no scipy for programs without LAPACK (evaluation/programs.py)",
    "jax._src.source_info_util": "the source line of an operation (verify/jax, exact)",
    "levanter.layers.attention.Attention._compute_qkv": "queries, keys and values as they are computed there (plugins/rl)",
    "levanter.data._prp.Permutation": "the order of recipes that name none (training/permutation.py)",
    "mlflow.entities.run_data.RunData._metric_objs": "the order of a run's metrics",
    "mlflow.server.handlers._model_registry_store_registry": "marin:// in MLflow's server",
    "mlflow.server.handlers._tracking_store_registry": "marin:// in MLflow's server",
    "mlflow.store.artifact.artifact_repository_registry._artifact_repository_registry": "marin:// in MLflow's server",
    "mlflow.store.tracking.sqlalchemy_store.SqlAlchemyStore._check_experiment_is_active": "MLflow's own refusals",
    "mlflow.store.tracking.sqlalchemy_store.SqlAlchemyStore._get_or_create_engine": "one connection is closed",
    "mlflow.store.artifact.utils.models._parse_model_uri": "an address of a model, as MLflow reads it",
    "mlflow.utils.validation._validate_dataset_inputs": "MLflow's own refusals",
    "mlflow.utils.validation._validate_experiment_tag": "MLflow's own refusals",
    "mlflow.utils.validation._validate_metric": "MLflow's own refusals",
    "mlflow.utils.validation._validate_model_renaming": "MLflow's own refusals",
    "mlflow.utils.validation._validate_model_version_tag": "MLflow's own refusals",
    "mlflow.utils.validation._validate_registered_model_tag": "MLflow's own refusals",
    "mlflow.utils.validation._validate_tag": "MLflow's own refusals",
    "mlflow.utils.validation._validate_tag_name": "MLflow's own refusals",
    "mlflow.utils.async_logging.async_logging_queue.AsyncLoggingQueue._lock": "one worker writes, in order",
    "mlflow.utils.async_logging.async_logging_queue.AsyncLoggingQueue._logging_loop": "one worker writes, in order",
    "mlflow.utils.name_utils._generate_random_name": "names of runs as MLflow draws them",
    "mlflow.utils.validation._validate_batch_log_data": "MLflow's own refusals",
    "mlflow.utils.validation._validate_batch_log_limits": "MLflow's own refusals",
    "mlflow.utils.validation._validate_experiment_name": "MLflow's own refusals",
    "mlflow.utils.validation._validate_logged_model_name": "MLflow's own refusals",
    "mlflow.utils.validation._validate_model_alias_name": "MLflow's own refusals",
    "mlflow.utils.validation._validate_model_alias_name_reserved": "MLflow's own refusals",
    "mlflow.utils.validation._validate_model_name": "MLflow's own refusals",
    "mlflow.utils.validation._validate_param": "MLflow's own refusals",
    "mlflow.utils.validation._validate_param_keys_unique": "MLflow's own refusals",
    "mlflow.utils.validation._validate_run_id": "MLflow's own refusals",
    "ray._private.authentication_test_utils.reset_auth_token_state": "a Ray that was imported before reads the new token",
    "ray._private.ray_constants.ENABLE_RAY_CLUSTER": "whether a Ray that was imported before listens beyond this machine",
    "ray._private.utils.set_sigterm_handler": "Ray does not take SIGTERM (plugins/ray/signals.py)",
    "ray._private.worker._global_node": "where the processes of a Ray of one's own write",
    "threading._shutdown": "the end of a process (process/interpreter.py)",
}
ONLY_TYPED = {"hashlib._Hash"}
"""Names that a type checker knows and no program has."""


@cache
def sources() -> list[str]:
    files = [path for name in OURS for path in sorted((PROJECT / name).rglob("*.py"))]
    return [path.read_text("utf-8") for path in files]


def imports() -> Iterator[tuple[str, str]]:
    """Module and name of every import of something that is not ours; no name for a whole module."""
    for source in sources():
        for node in nodes(source):
            if isinstance(node, ast.Import):
                yield from ((alias.name, "") for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
                yield from ((node.module, alias.name) for alias in node.names)


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


@pytest.mark.long
def test_each_requirement_is_imported_or_says_why_it_is_there() -> None:
    told = tomllib.loads((PROJECT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = told["optional-dependencies"]
    lines = [*told["dependencies"], *(line for name in extras if name not in ("all", "eval") for line in extras[name])]
    required = {found[0].lower() for line in lines if (found := re.match(r"[A-Za-z][\w.-]*", line))}
    packages = packages_distributions()
    modules = {module.partition(".")[0] for module, _ in imports()} - {*OURS, *sys.stdlib_module_names}
    imported = {
        distribution.lower().replace("_", "-") for module in modules for distribution in packages.get(module, [module])
    }
    if gauges.absent():  # a plugin that is not in this tree imports some of them
        assert required - imported >= NOT_IMPORTED.keys()
    else:
        assert required - imported == NOT_IMPORTED.keys()
    unsaid = {
        module
        for module in modules
        if not required & {name.lower().replace("_", "-") for name in packages.get(module, [module])}
    }
    known = NOT_REQUIRED.keys() & unsaid if gauges.absent() else NOT_REQUIRED.keys()
    assert unsaid == known, "put it into pyproject.toml, or say what it comes with"


def test_private_names_of_other_packages_are_those_listed() -> None:
    own = {
        name
        for source in sources()
        for node in nodes(source)
        for name in (
            getattr(node, "name", None),
            getattr(node, "arg", None),
            node.id if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) else None,
            node.attr if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) else None,
        )
        if isinstance(name, str)
    }
    used = {
        f"{module}.{name}".rstrip(".")
        for module, name in imports()
        if module.partition(".")[0] not in (*OURS, "__future__") and any(map(is_private, (*module.split("."), name)))
    }
    attributes = {
        node.attr
        for source in sources()
        for node in nodes(source)
        if isinstance(node, ast.Attribute) and is_private(node.attr) and node.attr not in own
    }
    assert {name for name in used if not any(listed.startswith(name) for listed in PRIVATE)} == set()
    listed = {part for name in PRIVATE for part in name.split(".") if is_private(part)}
    assert attributes <= listed or gauges.absent(), "a plugin that is not there may define it"
    unused = listed - attributes - {part for name in used for part in name.split(".")}
    assert gauges.absent() or unused == set(), "one is used no more"


@pytest.mark.parametrize("name", sorted(PRIVATE.keys() - ONLY_TYPED))
def test_private_names_of_other_packages_are_there(name: str) -> None:
    """By their source files: nothing but Python's own is imported for it."""
    top, *parts = name.split(".")
    if top in sys.stdlib_module_names:
        assert hasattr(import_module(top), parts[0])
        return
    found = find_spec(top)
    assert found is not None and found.origin is not None
    place = Path(found.origin).parent
    while parts and (place / parts[0]).is_dir():
        place /= parts.pop(0)
    file = place / f"{parts.pop(0)}.py" if parts and (place / f"{parts[0]}.py").is_file() else place / "__init__.py"
    body = ast.parse(file.read_text("utf-8")).body
    for part in parts:
        (body,) = [list(getattr(node, "body", [])) for node in body if part in names_of(node)][:1]


def names_of(statement: ast.stmt) -> set[str]:
    """The names that a statement defines or binds; of a method also those that it sets."""
    if isinstance(statement, ast.ClassDef):
        return {statement.name}
    if isinstance(statement, ast.FunctionDef):
        stored = (node for node in ast.walk(statement) if isinstance(node, ast.Attribute))
        return {statement.name, *(node.attr for node in stored if isinstance(node.ctx, ast.Store))}
    targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
    return {target.id for target in targets if isinstance(target, ast.Name)}


def test_the_wheel_says_the_pythons_that_are_tested_each_week() -> None:
    declared = tomllib.loads((PROJECT / "pyproject.toml").read_text("utf-8"))["project"]["classifiers"]
    named = [
        line.rpartition(" ")[2] for line in declared if re.fullmatch(r"Programming Language :: Python :: 3\.\d+", line)
    ]
    found = re.search(
        r"^readonly oldest=(\d+) newest=(\d+)", (PROJECT / ".ci/environment").read_text("utf-8"), re.MULTILINE
    )
    assert found is not None
    assert named == [f"3.{minor}" for minor in range(int(found[1]), int(found[2]) + 1)]
    weekly = (PROJECT / ".github/workflows/weekly.yml").read_text("utf-8")
    assert f"version: {named}".replace("'", '"') in weekly
