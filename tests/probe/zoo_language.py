"""Language models from `transformers` configurations: small sizes, their own initialization."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from probe.trainable import SAMPLES, Trainable, labels, random, some_hidden, tokens
from probe.zoo_images import TRANSFORMER, from_config

WORDS = 100
SPECIAL = {"vocab_size": WORDS, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
DECODER = {**SPECIAL, **TRANSFORMER, "num_key_value_heads": 2, "max_position_embeddings": 64}
ENCODER = {**SPECIAL, **TRANSFORMER, "max_position_embeddings": 64}
RATE = 1e-3  # as small as these models are


def _causal(name: str, *, labelled: bool = True, config: str | None = None, **options: Any) -> Trainable:
    """A model that predicts the next token. labelled: `check` uses the model's own loss; otherwise only tokens."""

    def batch() -> dict[str, Tensor]:
        ids = tokens(WORDS)
        return {"input_ids": ids} | ({"labels": ids} if labelled else {})

    build = from_config(name, config or name.replace("ForCausalLM", "Config"), **options)
    goal = None if labelled else _next_tokens
    return Trainable(build, batch, {}, goal, RATE, "transformers")


def _next_tokens() -> Tensor:
    return tokens(WORDS).roll(-1, dims=1)


def _masked(name: str, *, labelled: bool = True, **options: Any) -> Trainable:
    """A model that guesses hidden tokens."""

    def batch() -> dict[str, Tensor]:
        made = some_hidden(tokens(WORDS), mask=3)
        return made if labelled else {"input_ids": made["input_ids"]}

    build = from_config(f"{name}ForMaskedLM", f"{name}Config", **options)
    return Trainable(build, batch, {}, None if labelled else lambda: tokens(WORDS), RATE, "transformers")


def _padded() -> dict[str, Tensor]:
    """Sentences of 5 to 16 tokens with the mask that goes with them."""
    ids = tokens(WORDS)
    lengths = torch.randint(5, 17, (SAMPLES, 1), generator=random())
    kept = torch.arange(ids.shape[1]) < lengths
    return {"input_ids": ids.masked_fill(~kept, 0), "attention_mask": kept.long()}


def _labelled_sentences() -> dict[str, Tensor]:
    return _padded() | {"labels": labels(4)}


def _sentences(name: str, *, labelled: bool = True, **options: Any) -> Trainable:
    """A classifier of padded sentences."""
    build = from_config(f"{name}ForSequenceClassification", f"{name}Config", num_labels=4, **options)
    if labelled:
        return Trainable(build, _labelled_sentences, {}, None, RATE, "transformers")
    return Trainable(build, _padded, {}, lambda: labels(4), RATE, "transformers")


def _replaced() -> dict[str, Tensor]:
    """For ELECTRA: which tokens are not the original ones?"""
    return {"input_ids": tokens(WORDS), "labels": (torch.rand(SAMPLES, 16, generator=random(2)) < 0.3).long()}


def _pairs() -> dict[str, Tensor]:
    """Sentences and what they are translated to."""
    return {"input_ids": tokens(WORDS), "labels": tokens(WORDS, 12, seed=1)}


GPT2 = {**SPECIAL, "n_positions": 64, "n_embd": 48, "n_layer": 3, "n_head": 4}
SSM = {**SPECIAL, "hidden_size": 48, "num_hidden_layers": 3, "state_size": 8}

LANGUAGE: dict[str, Trainable] = {
    "BERT, masked": _masked("Bert", **ENCODER),
    "BERT, sentences": _sentences("Bert", labelled=False, **ENCODER),
    "BERT, 12 layers": _masked("Bert", **ENCODER | {"num_hidden_layers": 12}),
    "RoBERTa": _sentences("Roberta", **ENCODER),
    "DistilBERT": _masked(
        "DistilBert", labelled=False, vocab_size=WORDS, dim=48, n_layers=3, n_heads=4, hidden_dim=96,
        max_position_embeddings=64,
    ),
    "ALBERT": _masked("Albert", embedding_size=32, **ENCODER),
    "ELECTRA": Trainable(
        from_config("ElectraForPreTraining", "ElectraConfig", embedding_size=32, **ENCODER),
        _replaced, {}, None, RATE, "transformers",
    ),
    "DeBERTa V2": _masked(
        "DebertaV2", relative_attention=True, pos_att_type=["p2c", "c2p"], position_buckets=8, **ENCODER
    ),
    "MPNet": _masked("MPNet", labelled=False, **ENCODER),
    "FNet": _masked("FNet", **{k: v for k, v in ENCODER.items() if k != "num_attention_heads"}),
    "Funnel": _sentences(
        "Funnel", vocab_size=WORDS, block_sizes=[1, 1, 1], d_model=48, n_head=4, d_head=12, d_inner=96
    ),
    "GPT-2": _causal("GPT2LMHeadModel", config="GPT2Config", **GPT2),
    "GPT-2, eager attention": _causal(
        "GPT2LMHeadModel", config="GPT2Config", labelled=False, attn_implementation="eager", **GPT2
    ),
    "GPT-Neo": _causal(
        "GPTNeoForCausalLM", **SPECIAL, hidden_size=48, num_layers=2, attention_types=[[["global", "local"], 1]],
        num_heads=4, window_size=8, max_position_embeddings=64,
    ),
    "GPT-NeoX": _causal("GPTNeoXForCausalLM", labelled=False, **ENCODER),
    "OPT": _causal(
        "OPTForCausalLM", labelled=False, **SPECIAL, hidden_size=48, ffn_dim=96, num_hidden_layers=3,
        num_attention_heads=4, max_position_embeddings=64, word_embed_proj_dim=48,
    ),
    "BLOOM": _causal("BloomForCausalLM", **SPECIAL, hidden_size=48, n_layer=3, n_head=4),
    "Llama": _causal("LlamaForCausalLM", **DECODER),
    "Llama, no labels": _causal("LlamaForCausalLM", labelled=False, **DECODER),
    "Mistral": _causal("MistralForCausalLM", labelled=False, sliding_window=8, **DECODER),
    "Mixtral": _causal("MixtralForCausalLM", num_local_experts=4, num_experts_per_tok=2, **DECODER),
    "Qwen2": _causal("Qwen2ForCausalLM", **DECODER),
    "Qwen3": _causal("Qwen3ForCausalLM", labelled=False, head_dim=12, **DECODER),
    "Gemma": _causal("GemmaForCausalLM", head_dim=12, **DECODER),
    "Gemma 2": _causal("Gemma2ForCausalLM", labelled=False, head_dim=12, **DECODER),
    "Phi": _causal("PhiForCausalLM", **DECODER),
    "OLMo 2": _causal("Olmo2ForCausalLM", **DECODER),
    "Falcon": _causal(
        "FalconForCausalLM", labelled=False, **SPECIAL, hidden_size=48, num_hidden_layers=3, num_attention_heads=4
    ),
    "Mamba": _causal("MambaForCausalLM", **SSM),
    "Mamba 2": _causal("Mamba2ForCausalLM", num_heads=6, head_dim=16, n_groups=1, chunk_size=8, **SSM),
    "RWKV": _causal(
        "RwkvForCausalLM", labelled=False, **SPECIAL, hidden_size=48, attention_hidden_size=48, num_hidden_layers=3
    ),
    "T5": Trainable(
        from_config(
            "T5ForConditionalGeneration", "T5Config", vocab_size=WORDS, d_model=48, d_kv=12, d_ff=96, num_layers=3,
            num_heads=4, decoder_start_token_id=0,
        ),
        _pairs, {}, None, RATE, "transformers",
    ),
    "BART": Trainable(
        from_config(
            "BartForConditionalGeneration", "BartConfig", **SPECIAL, d_model=48, encoder_layers=2, decoder_layers=2,
            encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=96, decoder_ffn_dim=96,
            max_position_embeddings=64, decoder_start_token_id=2, forced_eos_token_id=2,
        ),
        _pairs, {}, None, RATE, "transformers",
    ),
}  # fmt: skip
