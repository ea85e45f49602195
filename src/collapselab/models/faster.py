"""Library models with their slow spots mended: same weights, names and mathematics, so checkpoints stay the library's.

GPT-Neo's attention is written out by the library; `gpt_neo.py` has it run through the fused kernels. The GELU of GPT-2
and GPT-Neo is a formula of eight operations there; PyTorch has the same one as a single kernel.
"""

from torch import nn
from transformers import PreTrainedModel
from transformers.activations import NewGELUActivation

from collapselab.models.gpt_neo import faster_attention


def faster(model: PreTrainedModel) -> None:
    """Mend the slow spots of a model, built or loaded, in place; one that has none is left as it is."""
    faster_attention(model)
    for module in model.modules():
        for name, child in module.named_children():
            if type(child) is NewGELUActivation:
                setattr(module, name, nn.GELU(approximate="tanh"))
