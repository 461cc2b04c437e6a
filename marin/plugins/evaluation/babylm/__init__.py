"""The zero-shot tasks of the BabyLM challenge on a state, asked and counted as the challenge's own pipeline does
(github.com/babylm-org/babylm-eval, ``strict``)."""
