"""What a reader must know beside the numbers of a result: each a code that programs know, and a sentence.

None of these makes a number wrong. Each makes it the number of something else than one would think.
"""

import math
import re
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any, final

import torch
from torch import nn

from collapselab.measurement.compare_tokenizers import Tokenizers
from collapselab.models.taps import bare_model
from collapselab.models.weight_files import StoredWeights, quantised_as

CONVERSATION = re.compile(r"(^|[-_.])(instruct|chat|it|sft|dpo|rlhf)($|[-_.@\d])", re.IGNORECASE)
"""Parts of a name that say that a model was trained on conversations."""

ROUNDING = 1e-4
"""How far above that of equal chances a loss must be, as a share of it: more than rounding makes."""


@final
@dataclass(frozen=True)
class ModelFacts:
    """What is known of a model beside its numbers; nothing of one that was loaded in Python."""

    tokenizers: Tokenizers = field(default_factory=Tokenizers)
    stored: StoredWeights | None = None

    def facts(self, model: nn.Module) -> dict[str, Any]:
        """What a result records."""
        return {
            "stored_dtype": None if self.stored is None else self.stored.format,
            "quantised": quantised_as(getattr(model, "config", None), self.stored),
            "tokenizer": self.tokenizers.facts(),
        }

    def warnings(self, model: nn.Module, name: str, *, in_a_run: bool) -> list[dict[str, str]]:
        """What is to be said beside the result; of a run's tokenizer nothing, as its models know only their corpus."""
        quantised = quantised_as(getattr(model, "config", None), self.stored)
        chat = [] if in_a_run else chat_warnings(name, chat_template=self.tokenizers.chat_template)
        return [*tokenizer_warnings(self.tokenizers), *weight_warnings(model, quantised), *chat]


def warning(code: str, text: str) -> dict[str, str]:
    """One warning, as results record it."""
    return {"code": code, "text": text}


def tokenizer_warnings(tokenizers: Tokenizers) -> list[dict[str, str]]:
    """That the corpus's tokenizer is another, or could not be compared."""
    if tokenizers.same is False:
        return [warning("other-tokenizer", "The corpus was made with another tokenizer than the model's, as asked.")]
    if tokenizers.unread:
        return [warning("unknown-tokenizer", f"The model's tokenizer was not compared: {tokenizers.unread}")]
    return []


def weight_warnings(model: nn.Module, quantised: str | None) -> list[dict[str, str]]:
    """That the weights are rounded ones, or that the output layer is not the one that the configuration names."""
    found = []
    if quantised is not None:
        text = f"The weights are stored as {quantised}: rounded, whatever precision the model is run in."
        found.append(warning("quantised", text))
    if _has_another_head(model):
        text = (
            "The configuration ties the output layer to the input embedding, but the checkpoint has another output "
            "layer. That one is measured; other programs may use the embedding."
        )
        found.append(warning("untied", text))
    return found


def chat_warnings(name: str, *, chat_template: bool) -> list[dict[str, str]]:
    """That the model was trained on conversations, as corpora are not."""
    if not chat_template and not CONVERSATION.search(PurePath(name).name):
        return []
    sign = "its tokenizer has a chat template" if chat_template else "its name says so"
    return [warning("chat", f"A model for conversations ({sign}) is measured on plain text, without turns.")]


def loss_warnings(loss: float, classes: int) -> list[dict[str, str]]:
    """That the model predicts worse than one that has learned nothing."""
    uniform = math.log(classes)
    if not loss > uniform * (1 + ROUNDING):
        return []
    text = (
        f"The validation loss, {loss:.4g}, is above ln({classes:,}) = {uniform:.4g}, that of equal chances for all "
        "tokens. The model and the corpus do not belong together, or the model is damaged."
    )
    return [warning("loss", text)]


def _has_another_head(model: Any) -> bool:
    bare: Any = bare_model(model)
    config: Any = getattr(bare, "config", None)
    text_config = config.get_text_config() if hasattr(config, "get_text_config") else config
    if not getattr(text_config, "tie_word_embeddings", False) or not hasattr(bare, "get_input_embeddings"):
        return False
    first, last = bare.get_input_embeddings(), bare.get_output_embeddings()
    if type(last) is not nn.Linear or first.weight is last.weight:  # an adapter's wrapper is another layer by design
        return False
    return not torch.equal(first.weight, last.weight)
