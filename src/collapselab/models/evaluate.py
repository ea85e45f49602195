"""Loss and accuracy of a model on a split, in one pass, without gradient and without tokens × vocabulary."""

import torch
from torch import nn

from collapselab.corpus.blocks import Split
from collapselab.models.scores import Scorer, Scores
from collapselab.models.taps import OutputLayer, features

TOKENS_AT_ONCE = 8192


@torch.no_grad()
def split_scores(
    model: nn.Module, split: Split, *, head: OutputLayer, device: torch.device, rank: int = 0, world: int = 1
) -> Scores:
    """Scores on this process's share of the blocks; those of all processes add up to those of the split.

    The model is evaluated as it stands (`eval` for its time), and left in the mode it was in.
    """
    was_training, scores, scorer = model.training, Scores(), Scorer(head)
    model.eval()
    try:
        for blocks in split.batches(world * max(1, TOKENS_AT_ONCE // split.block), rank=rank, world=world):
            if len(blocks):
                blocks = blocks.to(device)
                entering = features(model, blocks)[:, :-1]
                scores += scorer.scores(entering.reshape(-1, entering.shape[-1]), blocks[:, 1:].reshape(-1))
    finally:
        model.train(was_training)
    return scores
