"""A trained run served, its answer generated again, and its exported folder pushed to a hub and served from there."""

# Taken by their commands: marin.plugins.serve, marin.plugins.evaluation.

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from hub import hub_on_loopback
from huggingface_hub import ModelCard

from tests.e2e.conftest import MARIN, Project

ASKED = {"prompt": "The dog", "max_tokens": 6, "seed": 7, "logprobs": 1, "echo": True}


def served(project: Project, what: str, **environment: str) -> tuple[bytes, str]:
    """One answer of a server over ``what``, and what it says of itself; it is ended by SIGTERM."""
    arguments = [sys.executable, "-c", MARIN, "serve", what, "--port", "0"]
    with subprocess.Popen(
        arguments, cwd=project.folder, env=project.environment() | environment, stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout is not None
        address = server.stdout.readline().strip()
        answer = httpx.post(f"{address}/completions", json=ASKED, timeout=600)
        assert answer.status_code == 200, answer.text
        server.send_signal(signal.SIGTERM)
        assert server.wait(600) == 0
        return answer.content, server.stdout.read()


@pytest.mark.long(seconds=40)
def test_an_answer_of_a_run_and_of_its_folder_on_a_hub(trained: Project, tmp_path: Path) -> None:
    content, said = served(trained, "latest")
    answer = json.loads(content)
    assert answer["marin"]["state"] in said
    saved = tmp_path / "answer.json"
    saved.write_bytes(content)
    done = trained.marin("generate", "latest", "--replay", str(saved), "--json")
    found = json.loads(done.stdout)
    assert done.returncode == 0 and found["equal"] and found["logprobs"] > found["tokens"] > 0, done.stderr
    answer["marin"]["choices"][0]["tokens"][1] ^= 1
    saved.write_text(json.dumps(answer))
    done = trained.marin("generate", "latest", "--replay", str(saved))
    assert done.returncode == 1 and "token 1" in done.stdout

    folder = tmp_path / "model"
    with hub_on_loopback() as hub:
        environment = {"HF_ENDPOINT": hub.address, "HF_TOKEN": hub.token, "HF_HUB_DISABLE_XET": "1"}
        with pytest.MonkeyPatch.context() as patch:
            for name, value in environment.items():
                patch.setenv(name, value)
            arguments = (
                "export",
                "latest",
                "--hf",
                str(folder),
                "--card",
                "--license",
                "apache-2.0",
                "--hub",
                "owner/model",
            )
            done = trained.python(MARIN, *arguments, "--json", check=False)
        assert done.returncode == 0, done.stderr
        pushed = json.loads(done.stdout.splitlines()[-1])["path"]
        card = ModelCard.load(folder / "README.md")
        assert card.data.license == "apache-2.0" and card.data.eval_results
        again, _ = served(trained, pushed, **environment)
    shown = [json.loads(one)["choices"][0] for one in (content, again)]
    assert shown[0]["logprobs"] == shown[1]["logprobs"] and shown[0]["text"] == shown[1]["text"]


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("generate", "latest"), "named once"),
        (("generate", "latest", "--replay", os.devnull), "not an answer"),
        (("serve", "latest", "--vllm"), "vLLM serves a folder"),
        (("generate", "hf:owner/model@main", "--prompt", "a"), "pinned by its commit"),
        (("export", "latest", "--dvc", "x", "--card"), "--hf DEST"),
    ],
)
def test_what_cannot_be_served_is_said(trained: Project, arguments: tuple[str, ...], why: str) -> None:
    done = trained.marin(*arguments)
    assert (done.returncode, why in done.stderr, "Traceback" in done.stderr) == (2, True, False), done.stderr
