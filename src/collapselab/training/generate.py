"""Text that a trained model generates."""

from typing import Any

import torch

from collapselab.corpus.tokenizer import load_tokenizer
from collapselab.errors import ConfigError, CorpusError, ModelError, RunError
from collapselab.measurement.model_corpus import tokenizer_name
from collapselab.models.find import AdaptedModel, HubModel, ModelSource, find_models, place_of
from collapselab.models.load import find_device, load_model
from collapselab.records.run import verify_checkpoint


def sample(
    name: str,
    prompt: str,
    *,
    count: int = 1,
    tokens: int = 200,
    temperature: float = 0.8,
    top_k: int = 40,
    seed: int = 0,
    checkpoint: str | None = None,
    device: str = "auto",
) -> list[str]:
    """Texts that continue the prompt, up to the end-of-text token or `tokens` tokens in all.

    >>> from collapselab import sample
    >>> texts = sample("runs/small", "Once upon a time", count=2, tokens=20)
    >>> [text.startswith("Once upon a time") for text in texts]
    [True, True]
    """
    limits = {"count": (count, 1, 10**4), "tokens": (tokens, 1, 10**9), "top_k": (top_k, 0, 10**9),
              "seed": (seed, 0, 2**63 - 1)}  # fmt: skip
    for option, (value, least, most) in limits.items():
        if not least <= value <= most:
            raise ConfigError(f"{option}: {value:,} is not valid. It is from {least} to {most:,}.")
    if temperature != 0 and not 1e-3 <= temperature <= 1e6:
        raise ConfigError(f"temperature: {temperature} is not valid. It is 0, or from 0.001 to 1,000,000.")
    source, where = _choose(name, checkpoint), find_device(device)
    if source.checkpoint is not None:
        verify_checkpoint(source.checkpoint)
    model: Any = load_model(source, device=where)
    tokenizer = _tokenizer(source)
    ids = tokenizer(prompt, return_tensors="pt")["input_ids"].to(torch.int64)
    if not ids.numel():
        ids = torch.tensor([[tokenizer.eos_token_id]])
    longest = min(tokens, getattr(model.config, "max_position_embeddings", tokens))
    if ids.shape[1] >= longest:
        raise ConfigError(f"the prompt has {ids.shape[1]:,} tokens; no room is left in a text of {longest:,}.")
    drawing = {"do_sample": True, "temperature": temperature, "top_k": top_k} if temperature else {"do_sample": False}
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        written = model.generate(
            ids.to(where).expand(count, -1),
            attention_mask=torch.ones(count, ids.shape[1], dtype=torch.int64, device=where),
            max_length=longest,
            pad_token_id=tokenizer.eos_token_id,
            eos_token_id=tokenizer.eos_token_id,
            **drawing,
        )
    return [tokenizer.decode(ids, skip_special_tokens=True) for ids in written]


def _choose(name: str, checkpoint: str | None) -> ModelSource:
    sources = find_models([name])
    if checkpoint is None:
        return sources[-1]
    by_name = {source.checkpoint.name: source for source in sources if source.checkpoint is not None}
    if checkpoint in by_name:
        return by_name[checkpoint]
    there = ", ".join(by_name)
    raise RunError(f"{name}: has no checkpoint {checkpoint}.{f' It has {there}.' if there else ' It is not a run.'}")


def _tokenizer(source: ModelSource) -> Any:
    missing = f"{source.name}: has no tokenizer beside its weights that can be used, and text needs one."
    model = source.model
    if isinstance(model, HubModel):
        name = f"{model.identity}@{model.revision}" if model.revision else model.identity
    elif isinstance(model, AdaptedModel):
        name = tokenizer_name(place_of(source)) or str(model.adapter)
    else:
        name = str(model.path)
    try:
        tokenizer = load_tokenizer(name)
    except CorpusError as error:
        raise ModelError(f"{missing} {error}") from error
    if not tokenizer.encode("a", add_special_tokens=False):  # the library makes an empty one where it finds no files
        raise ModelError(missing)
    return tokenizer
