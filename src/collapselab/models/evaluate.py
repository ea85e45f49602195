"""Loss and accuracy of a model on a split, in one pass, without gradient and without tokens × vocabulary."""

import inspect

import torch
from torch import Tensor, nn

from collapselab.corpus.blocks import Split
from collapselab.models.scores import Scorer, Scores
from collapselab.models.taps import OutputLayer, bare_model, features

TOKENS_AT_ONCE = 8192


@torch.no_grad()
def split_scores(
    model: nn.Module, split: Split, *, head: OutputLayer, device: torch.device, rank: int = 0, world: int = 1
) -> Scores:
    """Scores on this process's share of the blocks; those of all processes add up to those of the split.

    The model is evaluated as it is (`eval` for that time), and left in the mode it was in.
    """
    was_training, scores, scorer = model.training, Scores(), Scorer(head)
    model.eval()
    try:
        for numbers in split.numbers(world * max(1, TOKENS_AT_ONCE // split.block), rank=rank, world=world):
            if len(numbers):
                blocks = split.read(numbers)
                entering = features(model, blocks.ids.to(device), **mask_inputs(model, blocks.attention, device))
                flat = entering[:, :-1].reshape(-1, entering.shape[-1])
                scores += scorer.scores(flat, blocks.labels.reshape(-1))
    finally:
        model.train(was_training)
    return scores


def mask_inputs(model: nn.Module, attention: Tensor | None, device: torch.device) -> dict[str, Tensor]:
    """What tells the model which tokens are padding: nothing where none are, or where the model takes no such mask.

    Padding comes after the text, where a causal model does not look; the mask says the same to one that might.
    """
    if attention is None or "attention_mask" not in inspect.signature(bare_model(model).forward).parameters:
        return {}
    return {"attention_mask": attention.to(device)}
