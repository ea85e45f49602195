"""Warnings about a model and its layers: each has a code for programs and a sentence for people.

None of them makes a number wrong. Each says that it may be the number of something else than a reader would think.
"""

import math
import re
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any, final

import torch
from torch import nn

from collapselab.measurement.collectors.moments import Moments, handful
from collapselab.measurement.compare_tokenizers import Tokenizers
from collapselab.models.function_model import FunctionModel
from collapselab.models.taps import bare_model
from collapselab.models.weight_files import StoredWeights, quantised_as
from collapselab.records.facts import ModelFacts, WarningFacts

CONVERSATION = re.compile(r"(^|[-_.])(instruct|chat|it|sft|dpo|rlhf)($|[-_.@\d])", re.IGNORECASE)
"""Parts of a name by which a model that was trained on conversations is known."""

ROUNDING = 1e-4
"""How far a loss must be above that of equal chances, as a share of it: more than a rounding error."""

RULED_SHARE = 0.5
"""A handful of features that carries more of a layer's sum of squares than this is worth a warning."""


@final
@dataclass(frozen=True)
class ModelFiles:
    """What is known from the files of a model; nothing for one that was loaded in Python."""

    tokenizers: Tokenizers = field(default_factory=Tokenizers)
    stored: StoredWeights | None = None

    def facts(self, model: nn.Module) -> ModelFacts:
        """The facts of a result that are known from the files."""
        return {
            **_sizes(model),
            "stored_dtype": None if self.stored is None else self.stored.format,
            "quantised": quantised_as(getattr(model, "config", None), self.stored),
            "tokenizer": self.tokenizers.facts(),
        }

    def warnings(self, model: nn.Module, name: str, *, in_a_run: bool, role: str | None = None) -> list[WarningFacts]:
        """The warnings about a model; none about conversations in a run, whose models know only their corpus.

        `role`: the texts of the corpus are turns of this one, in the model's template.
        """
        quantised = quantised_as(getattr(model, "config", None), self.stored)
        said = chat_warnings(name, chat_template=self.tokenizers.chat_template)
        said = [] if in_a_run else said if role is None else [turns_warning(role)]
        return [*tokenizer_warnings(self.tokenizers), *weight_warnings(model, quantised), *said]


def _sizes(model: nn.Module) -> ModelFacts:
    """Family, width, depth and parameters, as far as the model says them."""
    bare = bare_model(model)
    text_config = _text_config(bare)
    family, depth = (getattr(text_config, name, None) for name in ("model_type", "num_hidden_layers"))
    width = getattr(text_config, "hidden_size", None)
    sizes: ModelFacts = {"family": family if isinstance(family, str) and family else None}
    if isinstance(width, int):
        sizes["width"] = width
    sizes["depth"] = depth if isinstance(depth, int) else None
    if not isinstance(bare, FunctionModel):
        sizes["parameters"] = _parameters(bare)
    return sizes


def _text_config(model: nn.Module) -> object:
    """The configuration of the part that reads text, None where the model has none."""
    config = getattr(model, "config", None)
    of_text = getattr(config, "get_text_config", None)
    return config if of_text is None else of_text()


def _parameters(model: nn.Module) -> int:
    """Weights of a model; of one whose weights are packed, as the library counts them."""
    counted = getattr(model, "num_parameters", None)
    if getattr(model, "is_loaded_in_4bit", False) and counted is not None:
        return int(counted())
    return sum(parameter.numel() for parameter in model.parameters())


def warning(code: str, text: str) -> WarningFacts:
    """One warning, as the facts of a result have it."""
    return {"code": code, "text": text}


def tokenizer_warnings(tokenizers: Tokenizers) -> list[WarningFacts]:
    """That the corpus's tokenizer is another, or could not be compared."""
    if tokenizers.same is False:
        return [warning("other-tokenizer", "The corpus was made with another tokenizer than the model's, as asked.")]
    if tokenizers.unread:
        return [warning("unknown-tokenizer", f"The model's tokenizer was not compared: {tokenizers.unread}")]
    return []


def weight_warnings(model: nn.Module, quantised: str | None) -> list[WarningFacts]:
    """That the weights are rounded ones, or that the output layer is not the one that the configuration names."""
    warnings = []
    if quantised is not None:
        text = f"The weights are stored as {quantised}: rounded, whatever precision the model is run in."
        warnings.append(warning("quantised", text))
    if _has_another_head(model):
        text = (
            "The configuration ties the output layer to the input embedding, but the checkpoint has another output "
            "layer. That one is measured; other programs may use the embedding."
        )
        warnings.append(warning("untied", text))
    return warnings


def turns_warning(role: str) -> WarningFacts:
    """That a corpus is of turns, and which tokens count."""
    return warning(
        "chat-template",
        f"Each text is a turn of the {role} in the model’s chat template; the tokens of the turn and those that the "
        "template writes around it all count.",
    )


def chat_warnings(name: str, *, chat_template: bool) -> list[WarningFacts]:
    """That the model was trained on conversations, as corpora are not."""
    if not chat_template and not CONVERSATION.search(PurePath(name).name):
        return []
    sign = "its tokenizer has a chat template" if chat_template else "its name says so"
    return [warning("chat", f"A model for conversations ({sign}) is measured on plain text, without turns.")]


def loss_warnings(loss: float, classes: int) -> list[WarningFacts]:
    """That the model predicts worse than one that has learned nothing."""
    uniform = math.log(classes)
    if not loss > uniform * (1 + ROUNDING):
        return []
    text = (
        f"The validation loss, {loss:.4g}, is above ln({classes:,}) = {uniform:.4g}, that of equal chances for all "
        "tokens. The model and the corpus do not belong together, or the model is damaged."
    )
    return [warning("loss", text)]


def spread_warnings(moments: Moments) -> list[WarningFacts]:
    """That a handful of features carries more than half of a layer's sum of squares, for each layer where it does."""
    warnings = []
    for layer, features in moments.spread_layers.items():
        share = moments.share_of_handful(layer)
        if share > RULED_SHARE:
            text = (
                f"layer {layer}: {handful(features):,} of {features:,} features carry {share:.0%} of the squares; "
                "its values say little about the others."
            )
            sinks = " If these are the first positions of blocks, leave out more with --skip-positions."
            warnings.append(warning("few_features_rule", text + ("" if layer == "last" else sinks)))
    return warnings


def _has_another_head(model: nn.Module) -> bool:
    bare: Any = bare_model(model)
    if not getattr(_text_config(bare), "tie_word_embeddings", False) or not hasattr(bare, "get_input_embeddings"):
        return False
    first, last = bare.get_input_embeddings(), bare.get_output_embeddings()
    if type(last) is not nn.Linear or first.weight is last.weight:  # an adapter's wrapper is another layer by design
        return False
    return not torch.equal(first.weight, last.weight)
