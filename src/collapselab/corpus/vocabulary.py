"""Tokenizers: the hub's, a folder's, or one trained here on the training documents.

All are used through the Rust backend of the library's fast tokenizers, and all are checked on one sentence before they
are trusted: a tokenizer whose files are incomplete can load without a word and encode nothing.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from collapselab.corpus.sources import END_OF_TEXT, Documents
from collapselab.errors import CorpusError
from collapselab.progress import progress

SENTENCE = "Once upon a time, there was a little girl named Lily."


def tokenizer_for(name: str, documents: Documents) -> Any:
    """A fast tokenizer: `bpe:SIZE` is trained on the documents, all else is a folder or a name on the hub."""
    tokenizer = _trained(name, documents) if name.startswith("bpe:") else _loaded(name)
    encoded = tokenizer.backend_tokenizer.encode(SENTENCE, add_special_tokens=False).ids
    if not encoded or len(encoded) > 4 * len(SENTENCE):
        raise CorpusError(
            f"{name}: the tokenizer makes {len(encoded)} tokens of {SENTENCE!r}; its files are incomplete."
        )
    if tokenizer.eos_token_id is None:
        raise CorpusError(f"{name}: the tokenizer has no end-of-text token, which ends every document.")
    return tokenizer


def _loaded(name: str) -> Any:
    from transformers import AutoTokenizer

    if Path(name).is_dir() and not any(Path(name).glob("*token*")):
        raise CorpusError(f"{name}: the folder holds no tokenizer (no tokenizer.json).")
    try:
        tokenizer = AutoTokenizer.from_pretrained(name)
    except (OSError, ValueError, KeyError) as error:
        cause = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
        raise CorpusError(
            f"{name}: the tokenizer cannot be loaded ({cause}). Without a network, name a folder that holds "
            "tokenizer.json, or train one: --tokenizer bpe:4096."
        ) from error
    if not getattr(tokenizer, "is_fast", False):
        raise CorpusError(f"{name}: {type(tokenizer).__name__} has no fast form; one with a tokenizer.json is needed.")
    return tokenizer


def _trained(name: str, documents: Documents) -> Any:
    from transformers import PreTrainedTokenizerFast

    size = name.removeprefix("bpe:")
    if not size.isdigit() or int(size) < 257:
        raise CorpusError(f"{name}: write bpe:SIZE with at least 257 tokens, one a byte and the end of text.")
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=int(size),
        special_tokens=[END_OF_TEXT],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    with progress(f"training {name}", total=documents.total, unit=documents.unit) as advance:

        def counted() -> Iterator[str]:
            for document in documents.open():
                advance(documents.size(document))
                yield document

        tokenizer.train_from_iterator(counted(), trainer)
    fast: Any = PreTrainedTokenizerFast
    return fast(
        tokenizer_object=tokenizer, eos_token=END_OF_TEXT, bos_token=END_OF_TEXT, clean_up_tokenization_spaces=False
    )
