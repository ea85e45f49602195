"""Tiny models of many families: every way in which the library gets from a last block to logits."""

from typing import Any

import torch
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM

VOCABULARY = 67
DEPTH = 3
SMALL = {"hidden_size": 32, "num_hidden_layers": DEPTH, "num_attention_heads": 4, "intermediate_size": 48}
KEYS = {**SMALL, "num_key_value_heads": 2}
GPT = {"n_embd": 32, "n_layer": DEPTH, "n_head": 4}
OPT = {"hidden_size": 32, "num_hidden_layers": DEPTH, "num_attention_heads": 4, "ffn_dim": 48}
# Family: model_type, settings, and what lies between the last block and the output layer.
FAMILIES: dict[str, tuple[str, dict[str, Any], str]] = {
    "gpt-neo": ("gpt_neo", {"hidden_size": 32, "num_layers": DEPTH, "num_heads": 4, "attention_types": [[["global", "local", "global"], 1]], "window_size": 4, "max_position_embeddings": 64}, "transformer.ln_f"),
    "gpt2": ("gpt2", GPT, "transformer.ln_f"),
    "gpt-j (bias)": ("gptj", {**GPT, "rotary_dim": 4}, "transformer.ln_f"),
    "pythia": ("gpt_neox", SMALL, "gpt_neox.final_layer_norm"),
    "opt": ("opt", OPT, "model.decoder.final_layer_norm"),
    "opt (projection)": ("opt", {**OPT, "word_embed_proj_dim": 16, "do_layer_norm_before": False}, "model.decoder.project_out"),
    "bloom": ("bloom", {"hidden_size": 32, "n_layer": DEPTH, "n_head": 4}, "transformer.ln_f"),
    "falcon": ("falcon", {"hidden_size": 32, "num_hidden_layers": DEPTH, "num_attention_heads": 4}, "transformer.ln_f"),
    "mpt": ("mpt", {"d_model": 32, "n_layers": DEPTH, "n_heads": 4}, "transformer.norm_f"),
    "llama": ("llama", KEYS, "model.norm"),
    "llama (tied)": ("llama", {**KEYS, "tie_word_embeddings": True}, "model.norm"),
    "llama (padded vocabulary)": ("llama", {**KEYS, "vocab_size": 96}, "model.norm"),
    "mistral": ("mistral", KEYS, "model.norm"),
    "mixtral": ("mixtral", {**KEYS, "num_local_experts": 5}, "model.norm"),
    "qwen2": ("qwen2", KEYS, "model.norm"),
    "qwen3": ("qwen3", {**KEYS, "head_dim": 8}, "model.norm"),
    "gemma": ("gemma", {**KEYS, "head_dim": 8}, "model.norm"),
    "gemma2 (soft cap)": ("gemma2", {**KEYS, "head_dim": 8, "final_logit_softcapping": 3.0}, "model.norm"),
    "gemma3": ("gemma3_text", {**KEYS, "head_dim": 8}, "model.norm"),
    "gemma3 (soft cap)": ("gemma3_text", {**KEYS, "head_dim": 8, "final_logit_softcapping": 5.0}, "model.norm"),
    "phi (bias)": ("phi", KEYS, "model.final_layernorm"),
    "stablelm": ("stablelm", KEYS, "model.norm"),
    "olmo2": ("olmo2", KEYS, "model.norm"),
    "cohere (scale)": ("cohere", {**KEYS, "logit_scale": 0.25}, "model.norm"),
    "granite (scale)": ("granite", {**KEYS, "logits_scaling": 4.0}, "model.norm"),
    "granite (scale of a third)": ("granite", {**KEYS, "logits_scaling": 3.0}, "model.norm"),
    "modernbert-decoder": ("modernbert-decoder", {**SMALL, "layer_types": ["full_attention"] * DEPTH}, "model.final_norm lm_head"),
    "rwkv": ("rwkv", {"hidden_size": 32, "num_hidden_layers": DEPTH, "attention_hidden_size": 32}, "rwkv.ln_out"),
    "mamba": ("mamba", {"hidden_size": 32, "num_hidden_layers": DEPTH, "state_size": 4}, "backbone.norm_f"),
}  # fmt: skip


def config_of(name: str) -> Any:
    kind, settings, _ = FAMILIES[name]
    size = {"vocab_size": VOCABULARY, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    return AutoConfig.for_model(kind, **size | settings)


def model_of(name: str) -> Any:
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config_of(name)).eval()
    for parameter in model.parameters():  # initial biases are zero and initial weights small: make both matter
        nn.init.normal_(parameter, std=0.3)
    return model


def after_the_blocks(name: str, model: Any) -> nn.Module:
    return nn.Sequential(*(model.get_submodule(path) for path in FAMILIES[name][2].split()))
