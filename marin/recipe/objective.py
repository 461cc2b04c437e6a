"""What a training learns by other than the next token of a text: completions that a reward is computed of (docs/rl.md).

Fields have TRL's names where TRL has them. The plugin ``rl`` draws, rewards and learns; without it such a recipe is read and
refused.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta

from marin.errors import UsageError
from marin.recipe.model import CAUSAL
from marin.recipe.section import Count, Digest, Positive, Section

OBJECTIVES = "marin.objectives"
"""The group of plugins that a training with an objective needs."""


class OwnReward(Section, frozen=True, kw_only=True):
    """A function of a user's Python file: ``file`` below the working folder, whose bytes have ``digest`` and lie in the store."""

    file: Annotated[str, Meta(min_length=1, max_length=200, pattern=r"^[^/\\\x00-\x1f][^\\\x00-\x1f]*$")]
    function: Annotated[str, Meta(min_length=1, max_length=100)]
    digest: Digest


class Judge(Section, frozen=True, kw_only=True):
    """A recorded state that judges, of this model's shape: ``artifact`` is its checkpoint in the store, ``state`` its digest."""

    state: Digest
    artifact: Digest


class Objective(Section, frozen=True, kw_only=True):
    """Group-relative policy optimization (GRPO, arXiv:2402.03300), or REINFORCE (Williams, 1992).

    Every update draws ``trainer.batch_size / num_generations`` prompts and ``num_generations`` completions of each, by the
    state before it, and takes ``num_iterations`` train steps on all of them.
    """

    name: Literal["grpo", "reinforce"] = "grpo"
    prompts: Literal["doubled", "sums", "digits", "own"] = "doubled"
    """Which of the shipped sets of prompts, or those of ``questions``."""
    questions: Digest | None = None
    """The stored file of prompts and answers of one's own, as ``marin train --prompts FILE`` puts it there."""
    chat_template: Annotated[str, Meta(min_length=1, max_length=65_536)] | None = None
    """How prompts are written that are conversations (Jinja); null: as conversations without a template are."""
    reward: Literal["exact_match", "numeric_answer", "regular_expression", "judge"] | OwnReward = "regular_expression"
    """What a completion gets for its prompt's answer; one of one's own by `marin train --reward FILE.py:NAME`."""
    judge: Judge | None = None
    """Of ``reward: judge``, the mean log-probability that it gives to a token of the completion; `marin train --reward run:RUN`
    names the last state of a run."""
    asks: Annotated[str, Meta(min_length=1, max_length=4096)] | None = None
    """What the judge reads after prompt and completion, before it says ``verdict``."""
    verdict: Annotated[str, Meta(min_length=1, max_length=200)] | None = None
    """Of whose tokens the judge's log-probabilities are the reward, in place of those of the completion."""
    updates_behind: Annotated[int, Meta(ge=1, le=64)] | None = None
    """By how many updates the state that draws is behind the one that learns; null: by none. Before a state is recorded all of
    them are caught up: none draws that is older than the newest recorded one (``trainer.steps_per_segment``)."""
    num_generations: Annotated[int, Meta(ge=2, le=4096)] = 8
    num_iterations: Annotated[int, Meta(ge=1, le=64)] = 1
    max_completion_length: Positive = 16
    temperature: Annotated[float, Meta(gt=0.0, le=100.0)] = 1.0
    top_k: Count = 0
    """Only so many of the likeliest tokens are drawn from, and those as likely as the last of them; 0: all."""
    top_p: Annotated[float, Meta(gt=0.0, le=1.0)] = 1.0
    """Only the likeliest tokens are drawn from that have this share together, and those as likely as the last of them."""
    beta: Annotated[float, Meta(ge=0.0, le=100.0)] = 0.0
    """What the divergence (KL) from the state that the training began with weighs; 0: it is not computed."""
    epsilon: Annotated[float, Meta(gt=0.0, lt=1.0)] = 0.2
    epsilon_high: Annotated[float, Meta(gt=0.0, le=100.0)] | None = None
    """How far above 1 a ratio counts; None: as far as below, ``epsilon``."""
    loss_type: Literal["grpo", "dapo", "dr_grpo"] = "dapo"
    """What the losses of tokens are divided by: the length of their completion, and that by the number of completions (``grpo``);
    the number of all tokens of the batch (``dapo``); the number of completions times the longest length (``dr_grpo``)."""
    scale_rewards: Literal["group", "batch", "none"] = "group"
    """By the standard deviation of which rewards a reward's distance from its group's mean is divided."""
    importance_sampling_level: Literal["token", "sequence"] = "token"

    @property
    def stored(self) -> dict[str, str]:
        """Digest -> what it is, for what the store has of it."""
        found = {self.questions: "the prompts that completions are drawn of"} if self.questions is not None else {}
        reward = {} if isinstance(self.reward, str) else {self.reward.digest: "the code of the reward"}
        judge = {} if self.judge is None else {self.judge.artifact: "the state that judges completions"}
        return found | reward | judge

    @property
    def highest(self) -> float:
        """How far above 1 a ratio counts."""
        return self.epsilon if self.epsilon_high is None else self.epsilon_high


def between_updates(recipe: Any, step: int) -> bool:
    """Whether a state may be recorded before train step ``step``: no update is under way, and none is to come whose completions
    an earlier state draws."""
    objective: Objective | None = recipe.objective
    if objective is None or step == recipe.last_step:
        return True
    behind = objective.updates_behind is not None
    together = recipe.trainer.steps_per_segment if behind else objective.num_iterations
    return bool((step - recipe.first_step) % together == 0)


def objective_plugins(recipe: Any) -> tuple[tuple[str, str], ...]:
    """Group and name of the plugin of the objective, where the recipe has one."""
    return ((OBJECTIVES, "rl"),) if recipe.objective is not None else ()


def check_verdict(recipe: Any, *, where: str) -> None:
    """Refuse a verdict that nobody would give. Apart from :func:`check_objective`, for a recipe may have its judge last.

    Raises:
        UsageError: a verdict, and no judge.
    """
    objective: Objective | None = recipe.objective
    if objective is not None and objective.verdict is not None and objective.reward != "judge":
        raise UsageError(
            "a verdict, which a judge alone gives",
            where=f"{where}: objective.verdict",
            expected="null without objective.reward=judge",
            found=objective.verdict,
            cure="--reward run:RUN, or leave it out",
        )


def check_objective(recipe: Any, where: str) -> None:
    """Refuse what does not go together with an objective.

    Raises:
        UsageError: a setting of another kind of training, or a size that does not divide.
    """
    objective: Objective | None = recipe.objective
    if objective is None:
        return
    trainer, once = recipe.trainer, objective.num_iterations
    reinforce = objective.name == "reinforce"
    longest = recipe.model.seq_len - 1
    # Completions are drawn and learned from by one model in one arithmetic; what changes the one and not the other would make the
    # gradient that of another policy. What has no meaning for completions is refused, for it would stand in the recipe.
    for name, value, expected, fits in (
        ("arithmetic.profile", recipe.arithmetic.profile, "exact", recipe.arithmetic.profile == "exact"),
        (
            "arithmetic.factor_rounding",
            recipe.arithmetic.factor_rounding,
            "null: a completion is drawn and learned from by the same roundings",
            recipe.arithmetic.factor_rounding is None,
        ),
        ("model.architecture", recipe.model.architecture, " or ".join(CAUSAL), recipe.model.architecture in CAUSAL),
        ("lora", "adapters", "null", recipe.lora is None),
        ("exclude", "documents", "null", recipe.exclude is None),
        ("mixture", "a mixture", "null", recipe.mixture is None),
        ("trainer.packing", trainer.packing, "null", trainer.packing is None),
        ("trainer.z_loss", trainer.z_loss, "null", trainer.z_loss is None),
        ("trainer.states_at_words", "numbers of words", "null", trainer.states_at_words is None),
        ("trainer.most_epochs", trainer.most_epochs, "null", trainer.most_epochs is None),
        ("seed", "null", "a seed", recipe.seed is not None),
        ("order", recipe.order, "swap-or-not", recipe.order is not None),
        (
            "trainer.batch_size",
            trainer.batch_size,
            f"a multiple of objective.num_generations ({objective.num_generations})",
            trainer.batch_size % objective.num_generations == 0,
        ),
        (
            "trainer.num_steps",
            trainer.num_steps,
            f"a multiple of objective.num_iterations ({once})",
            trainer.num_steps % once == 0,
        ),
        (
            "trainer.steps_per_segment",
            trainer.steps_per_segment,
            f"a multiple of objective.num_iterations ({once}): a state is recorded between updates",
            trainer.steps_per_segment % once == 0,
        ),
        (
            "objective.questions",
            objective.questions or "null",
            "a stored file with objective.prompts=own, and null without",
            (objective.questions is not None) == (objective.prompts == "own"),
        ),
        (
            "objective.chat_template",
            objective.chat_template,
            "null where the prompts are shipped: they are texts",
            objective.chat_template is None or objective.prompts == "own",
        ),
        (
            "objective.max_completion_length",
            objective.max_completion_length,
            f"at most {longest}: model.seq_len without a token of the prompt",
            objective.max_completion_length <= longest,
        ),
        (
            "objective.epsilon_high",
            objective.epsilon_high,
            f"null, or at least objective.epsilon ({objective.epsilon})",
            objective.highest >= objective.epsilon,
        ),
        (
            "objective.num_iterations",
            once,
            "1 with objective.name=reinforce, whose gradient is that of the policy that drew",
            once == 1 or not reinforce,
        ),
        (
            "objective.updates_behind",
            objective.updates_behind,
            "null with objective.name=reinforce, whose gradient is that of the policy that drew",
            objective.updates_behind is None or not reinforce,
        ),
        (
            "objective.judge",
            "a state" if objective.judge is not None else "null",
            "a recorded state with objective.reward=judge, and null without",
            (objective.judge is not None) == (objective.reward == "judge"),
        ),
        (
            "objective.asks",
            objective.asks,
            "null without objective.verdict, which the judge says after it",
            objective.asks is None or objective.verdict is not None,
        ),
        (
            "objective.beta",
            objective.beta,
            "0 in a phase or from a folder: the reference is the state that the seed draws",
            objective.beta == 0 or (recipe.phase is None and recipe.initial is None),
        ),
    ):
        if not fits:
            raise UsageError(
                "settings that do not go together with an objective",
                where=f"{where}: {name}",
                expected=expected,
                found=str(value),
                cure="`marin train --prompts FILE` takes prompts of your own"
                if name == "objective.questions"
                else "docs/rl.md has what an objective goes together with",
            )
