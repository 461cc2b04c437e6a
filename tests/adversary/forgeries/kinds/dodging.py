"""Class 6: FAIL is dodged, by code that nobody has, by a machine that nobody has, by leaving out what would contradict."""

from __future__ import annotations

from marin.record import events as kinds
from tests.adversary.forgeries.kinds.binding import cache_changed, other_token
from tests.adversary.forgeries.registry import kind
from tests.adversary.forgeries.workshop import OTHER, Shop


def _unknown(shop: Shop, *steps: str) -> None:
    """Code digests that nobody has, so that what differs by execution proves nothing."""
    for step in steps:
        shop.one(kinds.STEP_STARTED, step).body["code"] = OTHER
        shop.one(kinds.RUN_STARTED).body["code"]["steps"][step] = OTHER
    shop.follow()


def _halved(shop: Shop) -> None:
    segment = shop.all(kinds.TRAIN_SEGMENT)[0].body
    segment["losses"] = [(float.fromhex(loss) / 2).hex() for loss in segment["losses"]]
    losses = [loss for entry in shop.all(kinds.TRAIN_SEGMENT) for loss in entry.body["losses"]]
    text = "step,loss\n" + "".join(f"{step},{float.fromhex(loss)!r}\n" for step, loss in enumerate(losses))
    done = shop.one(kinds.STEP_COMPLETED, "train").body
    done["tables"]["loss"] = shop.store.put_bytes(text.encode()).digest
    done["metrics"]["loss_first"] = losses[0]


@kind(6, "invented losses, by unknown code", verdict="artifacts", outcomes=("FAIL",), says="fingerprint")
def losses(shop: Shop) -> None:
    _halved(shop)
    _unknown(shop, "train")


@kind(
    6,
    "invented losses, by unknown code, without norms",
    verdict="training",
    outcomes=("UNAVAILABLE",),
    says="other code",
)
def losses_without_norms(shop: Shop) -> None:
    _halved(shop)
    for entry in shop.all(kinds.METRICS_RECORDED):
        entry.body["series"] = [s for s in entry.body["series"] if s["key"] != "train/grad_norm"]
    _unknown(shop, "train")


@kind(
    6,
    "invented losses with their fingerprints, by unknown code",
    verdict="training",
    outcomes=("UNAVAILABLE",),
    says="other code",
)
def losses_with_fingerprints(shop: Shop) -> None:
    from marin.record.fingerprint import step_fingerprint

    _halved(shop)
    segment = shop.all(kinds.TRAIN_SEGMENT)[0].body
    norms = [float.fromhex(v) for v in shop.all(kinds.METRICS_RECORDED)[0].body["series"][0]["values"]]
    trace = shop.store.read(segment["trace"])
    width = len(trace) // len(norms)
    segment["fingerprints"] = [
        step_fingerprint(float.fromhex(loss), norm, trace[at * width : (at + 1) * width])
        for at, (loss, norm) in enumerate(zip(segment["losses"], norms, strict=True))
    ]
    _unknown(shop, "train")


@kind(6, "a forged evaluation, by unknown code", verdict="model", outcomes=("UNAVAILABLE",), says="other code")
def evaluation(shop: Shop) -> None:
    shop.one(kinds.STEP_COMPLETED, "evaluate").body["metrics"]["perplexity"] = (1.01).hex()
    _unknown(shop, "evaluate")


@kind(6, "a metric against its event, by unknown code", outcomes=("FAIL",), says="metrics")
def metric(shop: Shop) -> None:
    _unknown(shop, "evaluate")
    shop.one(kinds.EVAL_COMPLETED).body["metrics"]["perplexity"] = (1.01).hex()


@kind(6, "a swapped export, by unknown code", verdict="artifacts", outcomes=("FAIL",), says="its own digest")
def export(shop: Shop) -> None:
    made = shop.altered(shop.output("export")["artifact"], lambda folder: (folder / "config.json").write_bytes(b"{}"))
    shop.output("export")["artifact"] = made.digest
    _unknown(shop, "export")


@kind(6, "a swapped export, and a trace kept back", verdict="artifacts", outcomes=("FAIL",), says="its own digest")
def export_and_less(shop: Shop) -> None:
    """What is missing must not excuse what the rest contradicts."""
    made = shop.altered(shop.output("export")["artifact"], lambda folder: (folder / "config.json").write_bytes(b"{}"))
    shop.output("export")["artifact"] = made.digest
    shop.all(kinds.TRAIN_SEGMENT)[1].body["trace"] = OTHER


@kind(
    6, "swapped tokens, and a state kept back", verdict="artifacts", outcomes=("FAIL",), says="output of tokens: digest"
)
def tokens_and_less(shop: Shop) -> None:
    made = shop.altered(shop.output("tokens")["artifact"], cache_changed("train", other_token))
    shop.output("tokens")["artifact"] = made.digest
    shop.all(kinds.CHECKPOINT_SAVED)[0].body["artifact"] = OTHER


@kind(6, "a code digest in the beginning alone", outcomes=("FAIL",), says="code")
def beginning(shop: Shop) -> None:
    shop.one(kinds.RUN_STARTED).body["code"]["steps"]["train"] = OTHER
    shop.follow()


@kind(6, "honest bits by code that nobody has", claimed="by code")
def nobody(shop: Shop) -> None:
    _unknown(shop, "train", "evaluate", "export")


@kind(6, "honest bits under a lock that nobody has", claimed="lock")
def lock(shop: Shop) -> None:
    shop.one(kinds.RUN_STARTED).body["environment"]["lock"] = OTHER
    for entry in shop.all(kinds.STEP_STARTED):
        if entry.body.get("lock"):
            entry.body["lock"] = OTHER
    shop.follow()


@kind(6, "a machine that nobody has", verdict="training", outcomes=("UNSUPPORTED", "FAIL"))
def machine(shop: Shop) -> None:
    _halved(shop)
    recipe = shop.one(kinds.RUN_STARTED).body["recipe"]
    recipe["arithmetic"] |= {"profile": "tpu", "device_kind": "TPU v9"}
    for entry in shop.all(kinds.STEP_STARTED):
        if "arithmetic" in entry.body["config"]:
            entry.body["config"]["arithmetic"] |= {"profile": "tpu", "device_kind": "TPU v9"}
    shop.one(kinds.TRAIN_STARTED).body["program"]["profile"] = "tpu"
    shop.follow()


@kind(6, "a fingerprint against its trace", verdict="artifacts", outcomes=("FAIL",), says="fingerprint")
def fingerprint(shop: Shop) -> None:
    shop.all(kinds.TRAIN_SEGMENT)[1].body["fingerprints"][1] = OTHER
    _unknown(shop, "train")


@kind(6, "a gradient norm against its fingerprint", verdict="artifacts", outcomes=("FAIL",), says="fingerprint")
def norm(shop: Shop) -> None:
    values = shop.all(kinds.METRICS_RECORDED)[1].body["series"][0]["values"]
    values[0] = (float.fromhex(values[0]) / 2).hex()
    _unknown(shop, "train")


@kind(6, "no stored states, so that segments can not begin", verdict="artifacts", outcomes=("UNAVAILABLE",))
def no_states(shop: Shop) -> None:
    for entry in shop.all(kinds.CHECKPOINT_SAVED):
        entry.body["artifact"] = OTHER


@kind(
    6,
    "a compiler that nobody has",
    verdict="training",
    outcomes=("UNSUPPORTED",),
    says="another compiler made this run",
)
def compiler(shop: Shop) -> None:
    shop.one(kinds.TRAIN_STARTED).body["program"]["jaxlib"] = "99.0.0"


@kind(6, "invented losses, by a compiler that nobody has", verdict="artifacts", outcomes=("FAIL",), says="fingerprint")
def losses_by_compiler(shop: Shop) -> None:
    _halved(shop)
    shop.one(kinds.TRAIN_STARTED).body["program"]["jaxlib"] = "99.0.0"
    shop.follow()


@kind(6, "a compiler that has no name", claimed="it was computed by the program that it records")
def nameless(shop: Shop) -> None:
    del shop.one(kinds.TRAIN_STARTED).body["program"]["jaxlib"]


@kind(
    6,
    "the programs of another train step",
    verdict="training",
    claimed="it was computed by the program that it records: different program",
)
def programs(shop: Shop) -> None:
    functions = shop.one(kinds.TRAIN_STARTED).body["program"]["functions"]
    functions |= dict.fromkeys(functions, OTHER)


@kind(6, "another version of what trains", claimed="it was computed by the program that it records: different program")
def levanter(shop: Shop) -> None:
    shop.one(kinds.TRAIN_STARTED).body["program"]["levanter"] = "99.0.0"


@kind(6, "invented losses, by another program", verdict="training", outcomes=("FAIL",), says="fingerprint")
def losses_by_program(shop: Shop) -> None:
    """What a program of another name gives excuses nothing, where the code is the run's."""
    _halved(shop)
    for entry in shop.all(kinds.METRICS_RECORDED):
        entry.body["series"] = [s for s in entry.body["series"] if s["key"] != "train/grad_norm"]
    functions = shop.one(kinds.TRAIN_STARTED).body["program"]["functions"]
    functions |= dict.fromkeys(functions, OTHER)
    shop.follow()
