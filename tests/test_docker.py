"""Images and cluster files as text: no engine and no cluster is where the tests run, so what can be checked without one
is checked here. `make lint` adds hadolint.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

PROJECT = Path(__file__).resolve().parent.parent
LINES = re.sub(r"\\\n", " ", (PROJECT / "docker" / "Dockerfile").read_text(encoding="utf-8")).splitlines()
STEPS = [line.split(maxsplit=1) for line in LINES if line and not line.startswith("#")]
COPIED = [
    source for word, rest in STEPS if word == "COPY" for source in rest.split()[:-1] if not source.startswith("--")
]
ACCELERATORS = ("gpu", "tpu")


def pins(lock: str) -> dict[str, str]:
    """Package to version, as a lock pins them."""
    return dict(
        re.findall(r"^([a-z0-9_.-]+)(?:\[[a-z0-9,-]+\])?==(\S+)", (PROJECT / lock).read_text(encoding="utf-8"), re.M)
    )


def test_everything_that_is_copied_is_in_the_repository() -> None:
    assert COPIED
    assert [source for source in COPIED if not (PROJECT / source).exists()] == []


def test_what_the_environment_script_reads_is_copied() -> None:
    assert {"pyproject.toml", "requirements.lock", ".ci", "Makefile", "ledger", "marin"} <= set(COPIED)


def test_the_python_is_one_that_the_lock_is_for() -> None:
    images = [rest.split() for word, rest in STEPS if word == "FROM"]
    wanted = (PROJECT / ".python-version").read_text(encoding="utf-8").strip()
    assert images[0][0].startswith(f"python:{wanted}-")
    assert [image[-1] for image in images] == ["cpu", *ACCELERATORS]
    assert {image[0] for image in images[1:]} == {"cpu"}, "the others are the same software with a plugin"


def test_no_secret_and_no_address_is_baked_in() -> None:
    text = "\n".join(LINES)
    assert not re.search(r"https?://|--index-url|PASSW|TOKEN=|\.pem", text)


def test_nobody_is_root_when_the_image_runs() -> None:
    users = [rest for word, rest in STEPS if word == "USER"]
    assert users and users[-1].isdecimal() and users[-1] != "0"


@pytest.mark.parametrize("kind", ACCELERATORS)
def test_an_accelerator_adds_the_plugin_of_the_very_same_jax(kind: str) -> None:
    locked, added = pins("requirements.lock"), pins(f"docker/requirements-{kind}.lock")
    assert added["jax"] == added["jaxlib"] == locked["jax"]
    assert {name: version for name, version in added.items() if name in locked and locked[name] != version} == {}
    assert [name for name in added if name.startswith({"gpu": "jax-cuda", "tpu": "libtpu"}[kind])]
    text = (PROJECT / "docker" / f"requirements-{kind}.lock").read_text(encoding="utf-8")
    assert text.count("--hash=sha256:") >= len(added), "every hash is checked"


def test_the_launcher_takes_the_cluster_file_for_gpus() -> None:
    from ray.autoscaler._private.util import fillout_defaults, validate_config

    config = yaml.safe_load((PROJECT / "conf/cluster/gpu.yaml").read_text(encoding="utf-8"))
    validate_config(fillout_defaults(config))
    commands = " ".join(config["head_start_ray_commands"] + config["worker_start_ray_commands"])
    assert commands.count("RAY_AUTH_MODE=token ray start") == commands.count("ray start") == 2
    assert "0.0.0.0" not in commands


def test_the_cluster_file_for_tpus_asks_for_whole_slices_and_a_token() -> None:
    (cluster,) = yaml.safe_load_all((PROJECT / "conf/cluster/tpu.yaml").read_text(encoding="utf-8"))
    head, (slices,) = cluster["spec"]["headGroupSpec"], cluster["spec"]["workerGroupSpecs"]
    rows, columns = map(int, slices["template"]["spec"]["nodeSelector"]["cloud.google.com/gke-tpu-topology"].split("x"))
    (worker,) = slices["template"]["spec"]["containers"]
    assert int(worker["resources"]["limits"]["google.com/tpu"]) * slices["numOfHosts"] == rows * columns
    for container in (*head["template"]["spec"]["containers"], worker):
        environment = {item["name"]: item for item in container["env"]}
        assert environment["RAY_AUTH_MODE"]["value"] == "token"
        assert "value" not in environment["RAY_AUTH_TOKEN"], "out of a secret"
    assert pins("requirements.lock")["ray"] == cluster["spec"]["rayVersion"]
