"""AlpacaEval and HELM read the files that `marin generate` writes for them, by their own code; HELM's client asks `marin serve`.

AlpacaEval's whole way from a file of outputs to its leaderboard runs, with its own annotator that always says the same. HELM's
classes write the scenario state that is answered, and read the answer with names and types checked (by dacite, which HELM uses).
"""

import json
import os
import sys

import judges
import pytest
from programs import ask

pytest.importorskip("datasets", reason="AlpacaEval imports it from our environment")

from marin.plugins.serve import files
from tests.plugins.serve.conftest import address, client, scorer, subject

__all__ = ["address", "client", "scorer", "subject"]

ALPACA_EVAL = """
import json, sys
from pathlib import Path
from alpaca_eval import evaluate
outputs, reference, said, folder = sys.argv[1], sys.argv[2], sys.argv[3], Path(sys.argv[4])
folder.mkdir(exist_ok=True)
(folder / "prompt.txt").write_text("<|im_start|>user\\n{instruction}\\n(a) {output_1}\\n(b) {output_2}\\n<|im_end|>")
(folder / "configs.yaml").write_text(f'''
judge:
  prompt_template: {folder / "prompt.txt"}
  fn_completions: test_completions
  completions_kwargs: {{model_name: none, value: Output ({said})}}
  completion_parser_kwargs: {{outputs_to_match: {{1: 'Output .a.', 2: 'Output .b.'}}}}
  is_randomize_output_order: false
  batch_size: 1
''')
board, annotations = evaluate(
    model_outputs=outputs, reference_outputs=reference, annotators_config=folder, precomputed_leaderboard=None,
    output_path=None, is_return_instead_of_print=True, fn_metric="get_winrate", sort_by="win_rate", caching_path=None)
print("board " + json.dumps([board.to_dict("index"), [[one["instruction"], one["output_2"]] for one in annotations]]))
"""
HELM = """
import json, sys
import dacite
from helm.benchmark.adaptation.adapter_spec import AdapterSpec
from helm.benchmark.adaptation.request_state import RequestState
from helm.benchmark.adaptation.scenario_state import ScenarioState
from helm.benchmark.scenarios.scenario import CORRECT_TAG, Input, Instance, Output, Reference
from helm.common.general import asdict_without_nones
from helm.common.request import Request
if sys.argv[1] == "ask":
    states = []
    for number, text in enumerate(("the dog", "we")):
        instance = Instance(Input(text), [Reference(Output("runs"), [CORRECT_TAG])], split="test", id=f"id{number}")
        request = Request(model_deployment="marin/m", model="marin/m", prompt=text, temperature=0.8, num_completions=2,
                          max_tokens=5, stop_sequences=["\\n"])
        states.append(RequestState(instance, None, "original", 0, None, request, None, 0, False))
    print(json.dumps(asdict_without_nones(ScenarioState(AdapterSpec(method="generation"), states)), indent=2))
else:
    state = dacite.from_dict(ScenarioState, json.load(sys.stdin), dacite.Config(strict=True, cast=[float]))
    for instance in state.instances:
        (one,) = state.get_request_states(0, instance, None)
        said = [[done.text, done.logprob, [token.text for token in done.tokens]] for done in one.result.completions]
        print(json.dumps([instance.id, one.result.success, said, len(one.render_lines())]))
"""

ASKING = """
import json, sys
from alpaca_eval.decoders.openai import openai_completions
found = openai_completions(
    ["<|im_start|>user\\n" + word + "\\n<|im_end|>" for word in ("why", "how")], "aaaa", max_tokens=8, num_procs=1, temperature=0,
    price_per_token=0.0, client_config_path="none", openai_api_base=sys.argv[1], openai_api_keys=["none"])
print("said " + json.dumps(list(found["completions"])))
"""
CLIENT = """
import json, sys, types
sys.modules["sqlitedict"] = types.SimpleNamespace(SqliteDict=dict)  # of its caches on disk, which are not used
from helm.clients.openai_client import OpenAILegacyCompletionsClient
from helm.clients.vllm_client import VLLMChatClient
from helm.common.cache import BlackHoleCacheConfig
from helm.common.request import Request
base = sys.argv[1]
clients = {
    "completions": OpenAILegacyCompletionsClient(BlackHoleCacheConfig(), api_key="none", base_url=base, openai_model_name="aaaa"),
    "chat": VLLMChatClient(BlackHoleCacheConfig(), base_url=base, vllm_model_name="aaaa"),
}
for line in sys.stdin:
    kind, wanted = json.loads(line)
    request = Request(model_deployment="marin/m", model="marin/m", prompt="the dog", **wanted)
    try:
        result = clients[kind].make_request(request)
        said = [[done.text, done.logprob, [token.logprob for token in done.tokens]] for done in result.completions]
        print("said " + json.dumps([result.success, result.error, said]))
    except Exception as error:
        print("said " + json.dumps([False, f"{type(error).__name__}: {error}", []]))
"""


def test_alpaca_eval_ranks_our_outputs(judge, subject, scorer, tmp_path):
    (room,) = judges.room("alpaca_eval").glob("lib/python*/site-packages")
    environment = {"PYTHONPATH": os.pathsep.join([str(room), *filter(None, sys.path)]), "HF_HUB_OFFLINE": "1"}
    (tmp_path / "set.json").write_text(
        json.dumps([{"instruction": one, "dataset": "x"} for one in ("why", "how", "who")])
    )
    rows = files.read_instructions(tmp_path / "set.json")
    wanted = files.numbered([files.TextRequest(row["instruction"], 6, 0.9) for row in rows])
    said = files.say_all(subject, scorer, wanted, 3, lambda count: None)
    ours, reference, other = (tmp_path / name for name in ("ours.json", "reference.json", "other.json"))
    ours.write_text(files.alpaca_eval(rows, said, "ours"), encoding="utf-8")
    texts = ["one", "two", said[2].text]  # the last one is a draw
    reference.write_text(
        json.dumps([{**row, "output": text, "generator": "them"} for row, text in zip(rows, texts, strict=True)])
    )

    def ranked(outputs, preferred):
        arguments = [outputs, reference, preferred, tmp_path / f"judge-{preferred}"]
        return ask(sys.executable, "-c", ALPACA_EVAL, *arguments, env=environment, seconds=300)

    judged = judge("AlpacaEval", judges.version("alpaca_eval", "alpaca_eval"))
    for preferred, won in (("b", 2), ("a", 0)):
        status, printed = ranked(ours, preferred)
        assert status == 0, printed[-3000:]
        (line,) = [line for line in printed.splitlines() if line.startswith("board ")]
        board, read = json.loads(line.removeprefix("board "))
        assert list(board) == ["ours"] and (board["ours"]["n_wins"], board["ours"]["n_draws"]) == (won, 1)
        assert read == [[row["instruction"], one.text] for row, one in zip(rows, said, strict=True)]
    judged.accepts("outputs of `marin generate --alpaca-eval`, to its leaderboard")
    other.write_text(ours.read_text(encoding="utf-8").replace('"output"', '"text"'), encoding="utf-8")
    status, printed = ranked(other, "b")
    assert status != 0 and "output" in printed
    judged.refuses("outputs under another name")


def test_helm_reads_our_results(judge, subject, scorer, tmp_path):
    python = judges.room("helm") / "bin/python"
    status, asked = ask(python, "-c", HELM, "ask", env={"PYTHONPATH": ""})
    assert status == 0, asked
    (tmp_path / "scenario_state.json").write_text(asked)
    state, wanted = files.read_scenario(tmp_path / "scenario_state.json")
    said = files.say_all(subject, scorer, wanted, 1, lambda count: None)
    answered = files.helm(subject, state, said)

    def read(text):
        return ask(python, "-c", HELM, "read", stdin=text.encode(), env={"PYTHONPATH": "", "PYTHONIOENCODING": "utf-8"})

    judged = judge("HELM", judges.version("helm", "crfm-helm"))
    status, printed = read(answered)
    assert status == 0, printed
    found = [json.loads(line) for line in printed.splitlines()]
    assert [(one[0], one[1]) for one in found] == [("id0", True), ("id1", True)]
    results = [done for one in found for done in one[2]]
    assert [(text, logprob) for text, logprob, _ in results] == [
        (one.text, pytest.approx(sum(one.logprobs))) for one in said
    ]
    judged.accepts("results of `marin generate --helm`, in its classes")
    for before, after in (
        ('"logprob"', '"log_prob"'),
        ('"cached": false', '"cached": "no"'),
        ('"completions"', '"answers"'),
    ):
        assert before in answered
        status, printed = read(answered.replace(before, after))
        assert status != 0 and "dacite" in printed, printed
    judged.refuses("another name, another type, a result without completions")


def test_helm_asks_our_server(judge, address, client):
    python = judges.room("helm") / "bin/python"
    greedy = {"temperature": 0.0, "max_tokens": 8}
    lines = [
        ("completions", greedy),
        ("completions", {"temperature": 0.8, "max_tokens": 5, "num_completions": 3}),
        ("completions", {"temperature": 0.0, "max_tokens": 0, "echo_prompt": True}),
        ("chat", greedy),
        ("completions", {**greedy, "frequency_penalty": 1.5}),
    ]
    stdin = "".join(json.dumps(line) + "\n" for line in lines).encode()
    status, printed = ask(python, "-c", CLIENT, f"{address}/v1", stdin=stdin, env={"PYTHONPATH": ""}, seconds=300)
    assert status == 0, printed
    said = [json.loads(line.removeprefix("said ")) for line in printed.splitlines() if line.startswith("said ")]
    once, drawn, echoed, chat, refused = said

    def direct(**wanted: object):
        found = client.post("/v1/completions", json={"model": "aaaa", "prompt": "the dog", "temperature": 0, **wanted})
        return found.json()["choices"][0]

    own = direct(max_tokens=8, logprobs=1)
    assert once[:2] == [True, None] and len(once[2]) == 1
    text, total, each = once[2][0]
    assert (text, each) == (own["text"], own["logprobs"]["token_logprobs"]) and total == pytest.approx(sum(each))
    assert drawn[0] and len({text for text, _, _ in drawn[2]}) == 3
    assert all(total == pytest.approx(sum(each)) and len(each) == 5 for _, total, each in drawn[2])
    prompt = direct(max_tokens=0, echo=True, logprobs=1)["logprobs"]["token_logprobs"]
    assert echoed[0] and echoed[2][0][0] == "the dog" and echoed[2][0][2][1:] == prompt[1:]
    assert chat[0] and chat[2][0][0]
    judged = judge("HELM", judges.version("helm", "crfm-helm"))
    judged.accepts(
        "answers of `marin serve` to its OpenAI client: greedy, three draws, an echo with log-likelihoods, a chat"
    )
    assert not refused[0] and "penalty" in refused[1]
    judged.refuses("a penalty that the server does not have")


def test_alpaca_eval_asks_our_server(judge, address, client):
    rooms = [next(judges.room(name).glob("lib/python*/site-packages")) for name in ("alpaca_eval", "helm")]
    environment = {"PYTHONPATH": os.pathsep.join([*map(str, rooms), *filter(None, sys.path)]), "HF_HUB_OFFLINE": "1"}
    status, printed = ask(sys.executable, "-c", ASKING, f"{address}/v1", env=environment, seconds=300)
    assert status == 0, printed[-3000:]
    (line,) = [line for line in printed.splitlines() if line.startswith("said ")]
    wanted = []
    for word in ("why", "how"):
        body = {"model": "aaaa", "messages": [{"role": "user", "content": word}], "max_tokens": 8, "temperature": 0}
        wanted.append(client.post("/v1/chat/completions", json=body).json()["choices"][0]["message"]["content"])
    assert json.loads(line.removeprefix("said ")) == wanted
    judge("AlpacaEval", judges.version("alpaca_eval", "alpaca_eval")).accepts("chats with `marin serve` by its decoder")
