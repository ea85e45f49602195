"""The corpora of a suite: what is known of each before it is built, and building it once."""

import hashlib
import json
import math
import re
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, final

from collapselab.errors import CorpusError
from collapselab.records.corpus import read_corpus_record
from collapselab.suite.recipe import THE_CORPUS, Suite
from collapselab.suite.sections import ADDED_FIELDS, CorpusSpec, listed

if TYPE_CHECKING:
    from collapselab.corpus.sources import Source

MIN_BPE = 257
"""One token a byte, and the end of text."""

GUESS_DOCUMENTS = 200
"""Documents that are read to estimate the size of a corpus."""


@final
@dataclass(frozen=True)
class CorpusFacts:
    """What planning needs to know of a corpus. Without a `hash` it is not built yet, and its size is an estimate."""

    name: str
    path: Path
    hash: str | None
    block: int
    blocks: int
    validation_blocks: int
    vocabulary: int
    samples: int | None = None
    """Positions of the training split that have a label; None where all but the last of a block have."""
    validation_samples: int | None = None

    @property
    def key(self) -> str:
        """The corpus in a run's identity: its hash, or its path until it is built."""
        return self.hash or f"not built: {self.path}"


def corpus_facts(suite: Suite, folder: Path) -> dict[str, CorpusFacts]:
    """Return what is known of the suite's corpora, without building any."""
    return {name: _facts(name, spec, corpus_path(name, spec, folder)) for name, spec in suite.corpora.items()}


def build_corpora(suite: Suite, folder: Path) -> dict[str, CorpusFacts]:
    """Build the corpora that do not exist yet; one that is given as a folder must exist."""
    from collapselab.corpus.blocks import Corpus
    from collapselab.corpus.build import build_corpus

    for name, spec in suite.corpora.items():
        path = corpus_path(name, spec, folder)
        if spec.folder is None and not (path / "corpus.json").exists():
            build_corpus(_source(spec), path, spec.recipe)
        Corpus(path)  # whole and undamaged, before anything is trained on it
    return corpus_facts(suite, folder)


def corpus_path(name: str, spec: CorpusSpec, folder: Path) -> Path:
    """The folder of a corpus: the one in the recipe, or one inside the suite's, named by what it is built from."""
    if spec.folder is not None:
        return Path(spec.folder)
    later = {name for name in ADDED_FIELDS if getattr(spec, name) == CorpusSpec.model_fields[name].default}
    text = json.dumps(spec.model_dump(exclude={"blocks"} | later), sort_keys=True)
    label = re.split(r"[^\w-]", Path(spec.sources[0]).name)[0] if name == THE_CORPUS else name
    return folder / "corpora" / f"{label}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def _facts(name: str, spec: CorpusSpec, path: Path) -> CorpusFacts:
    if spec.folder is None and not (path / "corpus.json").exists():
        return _estimated_facts(name, spec, path)
    record = read_corpus_record(path)
    splits = record.splits
    return CorpusFacts(
        name=name,
        path=path,
        hash=record.hash,
        block=record.block,
        blocks=splits.train.blocks,
        validation_blocks=splits.validation.blocks,
        vocabulary=record.vocabulary,
        samples=record.samples("train"),
        validation_samples=record.samples("validation"),
    )


def _estimated_facts(name: str, spec: CorpusSpec, path: Path) -> CorpusFacts:
    from collapselab.corpus.tokenizer import WORDS

    recipe = spec.recipe
    if recipe.tokenizer == WORDS:  # a source that has tokens of its own, and says how many
        source = _source(spec)
        if source.words is None or source.validation is None:
            raise CorpusError(f"{', '.join(spec.sources)}: has no words of its own, which tokenizer {WORDS} needs.")
        vocabulary, per_block = len(source.words) + 1, float(recipe.block)
        tokens, held_out = float(source.train.total or 0), float(source.validation.total or 0)
    else:
        vocabulary = _vocabulary(spec)
        if spec.blocks is not None:
            return CorpusFacts(name, path, None, recipe.block, spec.blocks, max(1, spec.blocks // 100), vocabulary)
        tokens, held_out, per_document = _tokens(spec, vocabulary)
        per_block = per_document if recipe.packing == "document" else recipe.block
    train, validation = (max(1, round(count / per_block)) for count in (tokens, held_out))
    return CorpusFacts(name, path, None, recipe.block, train, validation, vocabulary)


def _vocabulary(spec: CorpusSpec) -> int:
    from collapselab.corpus.tokenizer import CHARACTERS, load_tokenizer

    tokenizer = spec.recipe.tokenizer
    kind, _, size = tokenizer.partition(":")
    if kind == CHARACTERS:  # those at the beginning of the text, the end of text and the unknown one
        return len(set().union(*islice(_source(spec).train.open(), GUESS_DOCUMENTS))) + 2
    if kind == "bpe":
        if not size.isdecimal() or int(size) < MIN_BPE:
            raise CorpusError(f"{tokenizer}: not a tokenizer. Write bpe:SIZE with at least {MIN_BPE} tokens.")
        return int(size)
    return len(load_tokenizer(tokenizer)) if Path(tokenizer).exists() else 50257


def _tokens(spec: CorpusSpec, vocabulary: int) -> tuple[float, float, float]:
    """About how many tokens the two splits have, and a document, from the beginning of the text."""
    from collapselab.corpus.tokenizer import CHARACTERS

    source = _source(spec)
    per_token = min(4.2, 1.3 + 0.72 * (math.log2(max(vocabulary, 300)) - 8))  # characters, as seen on storyworld
    if spec.recipe.tokenizer == CHARACTERS:
        per_token = 1.0
    first = list(islice(source.train.open(), GUESS_DOCUMENTS))
    if source.train.total is None or not first:
        raise CorpusError(
            f"{', '.join(spec.sources)}: its size is not known before it is read. To plan before that, write about "
            "how many blocks it makes: `blocks: 10000` in the recipe's corpus."
        )
    size = sum(source.train.size(text) for text in first)
    tokens = source.train.total * sum(map(len, first)) / size / per_token
    per_document = max(1.0, sum(map(len, first)) / len(first) / per_token)
    if source.validation is None:
        return tokens * (1 - spec.validation_share), tokens * spec.validation_share, per_document
    held_out = source.validation.total or 0
    return tokens, held_out / source.train.total * tokens, per_document


def _source(spec: CorpusSpec) -> "Source":
    from collapselab.corpus.sources import Reading, open_source

    reading = Reading(spec.text_column, spec.separator)
    validation = listed(spec.validation) or None
    return open_source(spec.sources, validation=validation, reading=reading, validation_share=spec.validation_share)
