"""Where trainings are executed: the product's environment and two more, each by a locked list of packages; and the previous
minor releases, in folders that stand before one of these."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
BUILD = PROJECT / "build" / "census"
PYTHON = {"torch": "3.11", "plain": "3.12"}
CUDA = (
    "triton==3.7.1",
    "cuda-bindings==13.5.0",
    "cuda-pathfinder==1.9.1",
    "nvidia-cublas==13.1.1.3",
    "nvidia-cuda-cupti==13.0.85",
    "nvidia-cuda-nvrtc==13.0.88",
    "nvidia-cuda-runtime==13.0.96",
    "nvidia-cudnn-cu13==9.20.0.48",
    "nvidia-cufft==12.0.0.61",
    "nvidia-cufile==1.15.1.6",
    "nvidia-curand==10.4.0.35",
    "nvidia-cusolver==12.0.4.66",
    "nvidia-cusparse==12.6.3.3",
    "nvidia-cusparselt-cu13==0.8.1",
    "nvidia-nccl-cu13==2.29.7",
    "nvidia-nvjitlink==13.0.88",
    "nvidia-nvshmem-cu13==3.4.5",
    "nvidia-nvtx==13.0.85",
)
"""What the wheel of an older torch in the index wants to be there, though nothing of it computes here."""
EARLIER = {
    "jax": ("plain", "jax==0.10.2", "jaxlib==0.10.2"),
    "flax": ("plain", "flax==0.11.2"),
    "keras": ("plain", "keras==3.14.1"),
    "scikit-learn": ("plain", "scikit-learn==1.8.0"),
    "lightgbm": ("plain", "lightgbm==4.6.0"),
    "xgboost": ("plain", "xgboost==3.3.0"),
    "tokenizers": ("plain", "tokenizers==0.21.4"),
    "ray": ("torch", "ray==2.59.0"),
    "torch": ("torch", "torch==2.12.1", *CUDA),
    "transformers": ("torch", "transformers==5.11.0"),
    "trl": ("torch", "trl==1.15.0"),
    "peft": ("torch", "peft==0.20.0"),
    "lightning": ("torch", "lightning==2.5.6"),
    "sentence-transformers": ("torch", "sentence-transformers==6.1.0"),
    "lm-eval": ("torch", "lm-eval==0.4.12"),
    "datatrove": ("torch", "datatrove==0.9.0"),
}
NAMED = (
    "torch",
    "transformers",
    "trl",
    "peft",
    "accelerate",
    "ray",
    "lightning",
    "sentence-transformers",
    "lm-eval",
    "keras",
    "jax",
    "jaxlib",
    "flax",
    "equinox",
    "optax",
    "marin-levanter",
    "marin-haliax",
    "numpy",
    "scipy",
    "scikit-learn",
    "lightgbm",
    "xgboost",
    "tokenizers",
    "datatrove",
)


def interpreter(name: str) -> Path:
    """The Python of an environment, which is made first where it is not there."""
    if name == "product":
        return Path(sys.executable)
    folder, listed = BUILD / name, Path(__file__).parent / f"requirements-{name}.txt"
    stamp = folder / f".installed-{hashlib.sha256(listed.read_bytes()).hexdigest()[:16]}"
    if not stamp.exists():
        _uv("venv", "--quiet", "--clear", "--python", PYTHON[name], str(folder))
        _uv("pip", "install", "--quiet", "--python", str(folder), "--no-deps", "--requirement", str(listed))
        stamp.touch()
    return folder / "bin" / "python"


def overlay(name: str) -> Path:
    """The folder with the previous minor release of a library, and nothing else."""
    environment, *packages = EARLIER[name]
    folder = BUILD / "earlier" / packages[0]
    if not folder.exists():
        python = str(interpreter(environment))
        _uv("pip", "install", "--quiet", "--python", python, "--no-deps", "--target", str(folder), *packages)
    return folder


@cache
def versions(name: str) -> dict[str, str]:
    """Of the packages that decide something, as the environment has them."""
    asked = (
        "import importlib.metadata as m, json, sys\nfound = {}\nfor name in sys.argv[1:]:\n"
        "    try: found[name] = m.version(name)\n"
        "    except m.PackageNotFoundError: pass\nprint(json.dumps({'python': sys.version.split()[0], **found}))"
    )
    done = subprocess.run([interpreter(name), "-c", asked, *NAMED], check=True, capture_output=True, text=True)
    found: dict[str, str] = json.loads(done.stdout)
    return found


def _uv(*arguments: str) -> None:
    wheels = os.environ.get("PIP_FIND_LINKS", "")
    surroundings = {**os.environ, "UV_SYSTEM_CERTS": "true", **({"UV_FIND_LINKS": wheels} if wheels else {})}
    subprocess.run([sys.executable, "-m", "uv", *arguments], check=True, env=surroundings)
