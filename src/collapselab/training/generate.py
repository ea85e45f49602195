"""Text that a trained model generates."""

from pathlib import Path
from typing import Any

import torch

from collapselab.corpus.tokenizer import load_tokenizer
from collapselab.errors import ConfigError, ModelError
from collapselab.measurement.model_corpus import tokenizer_name
from collapselab.models.find import find_models, place_of
from collapselab.models.load import find_device, load_model
from collapselab.records.run import verify_checkpoint
from collapselab.training.settings import Drawing


def sample(name: str, prompt: str, *, checkpoint: str | None = None, device: str = "auto", **options: Any) -> list[str]:
    """Texts that continue the prompt, up to the end-of-text token or `tokens` tokens in all.

    >>> from collapselab import sample
    >>> texts = sample("runs/small", "Once upon a time", count=2, tokens=20)
    >>> [text.startswith("Once upon a time") for text in texts]
    [True, True]

    `options` are `count`, `tokens`, `temperature`, `top_k` and `seed`, as on the command line.
    """
    drawing = Drawing(**options)
    where, chosen = find_device(device), [] if checkpoint is None else ["checkpoints", checkpoint]
    source = find_models([str(Path(name, *chosen))])[-1]
    if source.checkpoint is not None:
        verify_checkpoint(source.checkpoint)
    model: Any = load_model(source, device=where)
    tokenizer_at = tokenizer_name(place_of(source))
    tokenizer: Any = None if tokenizer_at is None else load_tokenizer(tokenizer_at)
    # The library makes an empty tokenizer where it finds no files.
    if tokenizer is None or not tokenizer.encode("a", add_special_tokens=False):
        raise ModelError(f"{source.name}: has no tokenizer beside its weights that can be used, and text needs one.")
    ids = tokenizer(prompt, return_tensors="pt")["input_ids"].to(torch.int64)
    if not ids.numel():
        ids = torch.tensor([[tokenizer.eos_token_id]])
    longest = min(drawing.tokens, getattr(model.config, "max_position_embeddings", drawing.tokens))
    if ids.shape[1] >= longest:
        raise ConfigError(f"the prompt has {ids.shape[1]:,} tokens; no room is left in a text of {longest:,}.")
    how: dict[str, Any] = {"temperature": drawing.temperature, "top_k": drawing.top_k} if drawing.temperature else {}
    with torch.random.fork_rng():
        torch.manual_seed(drawing.seed)
        written = model.generate(
            ids.to(where).expand(drawing.count, -1),
            attention_mask=torch.ones(drawing.count, ids.shape[1], dtype=torch.int64, device=where),
            max_length=longest,
            pad_token_id=tokenizer.eos_token_id,
            eos_token_id=tokenizer.eos_token_id,
            do_sample=bool(how),
            **how,
        )
    return [tokenizer.decode(ids, skip_special_tokens=True) for ids in written]
