"""A byte-level tokenizer, a tiny GPT-2 and rows of tokens, which trainings by Hugging Face's libraries share."""

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast, set_seed

END = "<|end|>"


def tokenizer_of(text: str) -> PreTrainedTokenizerFast:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(vocab_size=512, special_tokens=[END], initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator([text], trainer)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=END, pad_token=END)


def tiny_gpt2(vocabulary: int) -> GPT2LMHeadModel:
    set_seed(0)
    return GPT2LMHeadModel(GPT2Config(vocab_size=vocabulary, n_positions=64, n_embd=64, n_layer=2, n_head=4))


def rows_of(tokenizer: PreTrainedTokenizerFast, text: str, length: int = 48) -> list[dict[str, list[int]]]:
    ids = tokenizer(text)["input_ids"]
    rows = [ids[start : start + length] for start in range(0, len(ids) - length, 12)]
    return [{"input_ids": row, "labels": row} for row in rows]
