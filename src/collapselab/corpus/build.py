"""Build a corpus: tokenise documents, pack them into blocks, count tokens, and write the files.

The folder of a corpus appears when all its files are complete.

`stream` packing concatenates all documents and cuts the result into blocks; only the last remainder of a split is
dropped. Documents are separated by the end-of-text token after each of them. A tokenizer that itself writes a begin
token before a text and nothing after it, such as Llama's, separates them by that begin token, and every block then
starts with one, so that a model sees the input it was trained on. A source that is one endless text has no separators.

`paper` packing joins groups of 1,000 documents without a separator and drops each group's remainder, as Linguistic
Collapse did. `document` packing gives each document a block of its own, with the special tokens that the tokenizer
writes; longer documents are cut and shorter ones are padded.
"""

import hashlib
import json
import math
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from itertools import chain
from pathlib import Path
from typing import BinaryIO, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import JsonValue
from tokenizers import Tokenizer

from collapselab.corpus.blocks import Corpus
from collapselab.corpus.sources import Documents, Source, open_source
from collapselab.corpus.tokenizer import (
    LONG_DOCUMENT,
    SENTENCE,
    WORDS,
    FastTokenizer,
    end_of_text,
    parts_of,
    tokenizer_for,
    tokenizer_hash,
)
from collapselab.disk import folder_written_whole, locked, sha256
from collapselab.errors import CorpusError
from collapselab.messages import Advance, progress
from collapselab.records.corpus import (
    CORPUS,
    LENGTHS,
    CorpusRecord,
    FileRecord,
    RequestRecord,
    SplitRecord,
    SplitRecords,
    read_corpus_record,
)
from collapselab.records.options import Recipe as Recipe

GROUP = 1000
"""Documents that `paper` packing joins."""

BATCH_DOCUMENTS, BATCH_CHARACTERS = 512, 1 << 20
"""Limits of a batch for the tokenizer: large enough to keep every core busy, and only a few megabytes of memory."""

BUFFERED_TOKENS = 1 << 18
"""Tokens that a packer collects before it writes blocks."""

IdType = Literal["uint16", "uint32"]


def default_tokenizer(sources: Sequence[str]) -> str:
    """Return the tokenizer of a source for which none is named."""
    kind = sources[0].partition(":")[0] if sources else ""
    return {"tinystories": "gpt2", "markov": WORDS}.get(kind, Recipe.tokenizer)


def build_corpus(
    source: Source | str | Sequence[str],
    out: str | Path,
    recipe: Recipe | None = None,
    *,
    trust_code: bool = False,
) -> Corpus:
    """Build the corpus, or open it if the folder already contains the same corpus.

    >>> from collapselab import Recipe, build_corpus
    >>> recipe = Recipe(tokenizer="bpe:300", block=64)
    >>> build_corpus("storyworld:stories=20,validation=4", "corpora/stories", recipe)
    Corpus('corpora/stories': 173 + 31 blocks of 64 tokens; vocabulary 300)

    `source` is one or several names, as for `collapselab corpus build`, or the `Source` that `open_source` returns.
    A build that fails leaves no files behind and changes nothing that existed before. `trust_code` allows a tokenizer
    to run code that comes with it.
    """
    recipe, out = recipe or Recipe(), Path(out)
    if not isinstance(source, Source):
        names = [source] if isinstance(source, str) else list(source)
        source = open_source(names, validation_share=recipe.validation_share)
    request: dict[str, JsonValue] = json.loads(json.dumps({"source": source.provenance, **asdict(recipe)}))
    if _is_built(out, request):
        return Corpus(out)
    lock = out.with_name(f".{out.name}.lock")
    with locked(lock, wait=True):
        try:
            if not _is_built(out, request):  # by another process that had the lock
                with folder_written_whole(out) as partial:
                    _write(source, recipe, request, partial, trust_code=trust_code)
        finally:
            lock.unlink(missing_ok=True)
    return Corpus(out)


def _is_built(out: Path, request: dict[str, JsonValue]) -> bool:
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return False
    if not out.is_dir() or not (out / CORPUS).exists():
        raise CorpusError(f"{out}: already exists and is not a corpus. Name another folder.")
    record = read_corpus_record(out)
    built: dict[str, JsonValue] = asdict(Recipe())  # fields that were added to recipes later have their defaults
    if record.begin is None and record.boundary == "begin":
        built["begin"] = "document"  # earlier versions put begin tokens at the start of documents only
    built |= record.request.model_dump()
    changed = sorted(key for key in request.keys() | built.keys() if request.get(key) != built.get(key))
    if changed:
        differences = "; ".join(f"{key} was {built.get(key)!r}, now {request.get(key)!r}" for key in changed)
        raise CorpusError(f"{out}: contains another corpus ({differences}). Name another folder, or delete this one.")
    return True


def _write(source: Source, recipe: Recipe, request: dict[str, JsonValue], folder: Path, *, trust_code: bool) -> None:
    documents = _training_documents(source, recipe)
    tokenizer = tokenizer_for(recipe.tokenizer, documents, words=source.words, trust_code=trust_code)
    vocabulary = len(tokenizer)
    id_type = _id_type(recipe.id_type, vocabulary)
    if not source.joined:
        special = _special_tokens(recipe, tokenizer)
    elif recipe.boundary == recipe.begin == "auto":
        special = SpecialTokens()
    else:
        raise CorpusError("--boundary and --begin need documents, but this source is one continuous text.")
    padding = end_of_text(tokenizer)
    with (folder / "train.bin").open("wb") as first, (folder / "validation.bin").open("wb") as second:
        train, validation = (
            Packer(file, recipe, special, id_type=id_type, vocabulary=vocabulary, padding=padding)
            for file in (first, second)
        )
        _tokenise(source, tokenizer.backend_tokenizer, recipe, train, validation)
        train.finish("train")
        validation.finish("validation")
    np.save(folder / "counts.npy", np.stack([train.counts, validation.counts]))
    if recipe.packing == "document":
        np.save(folder / LENGTHS, np.array(train.lengths + validation.lengths, dtype=np.int32))
    tokenizer.save_pretrained(folder / "tokenizer")
    if source.write is not None:
        source.write(folder)
    files = {
        path.relative_to(folder).as_posix(): FileRecord(bytes=path.stat().st_size, sha256=sha256(path))
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
    record = CorpusRecord(
        hash="",
        request=RequestRecord.model_validate(request),
        block=recipe.block,
        vocabulary=vocabulary,
        end_of_text=tokenizer.eos_token_id,
        boundary=special.boundary,
        begin=special.begin,
        tokenizer_hash=tokenizer_hash(tokenizer),
        splits=SplitRecords(train=train.record(), validation=validation.record()),
        files=files,
        versions={name: version(name) for name in ("collapselab", "tokenizers", "transformers")},
        folder=source.folder,
    )
    record.model_copy(update={"hash": record.contents_hash()}).write(folder / CORPUS)


def _training_documents(source: Source, recipe: Recipe) -> Documents:
    """Return the documents to train a tokenizer on: all but those held out for validation."""
    if source.validation is not None:
        return source.train

    def training() -> Iterator[str]:
        return (text for number, text in enumerate(source.train.open()) if not _is_held_out(number, recipe))

    return replace(source.train, open=training)


def _is_held_out(number: int, recipe: Recipe) -> bool:
    """Return whether a document belongs to validation, for sources without a validation split.

    The decision depends only on the seed and the document's number.
    """
    digest = hashlib.blake2b(f"{recipe.seed} {number}".encode(), digest_size=8).digest()
    return int.from_bytes(digest) < recipe.validation_share * 2**64


def _id_type(requested: Literal["auto", "uint16", "uint32"], vocabulary: int) -> IdType:
    if requested == "auto":
        return "uint16" if vocabulary <= 1 << 16 else "uint32"
    if vocabulary - 1 > np.iinfo(requested).max:
        raise CorpusError(f"{requested} is too small for the tokenizer's {vocabulary:,} tokens. Use --id-type auto.")
    return requested


@dataclass(frozen=True)
class SpecialTokens:
    """Tokens that packing adds: before and after every document, and at the start of every block."""

    before: tuple[int, ...] = ()
    after: tuple[int, ...] = ()
    block_start: int | None = None

    @property
    def boundary(self) -> Literal["both", "begin", "end", "none"]:
        if self.before:
            return "both" if self.after else "begin"
        return "end" if self.after else "none"

    @property
    def begin(self) -> Literal["block", "document", "none"]:
        return "block" if self.block_start is not None else "document" if self.before else "none"


def _special_tokens(recipe: Recipe, tokenizer: FastTokenizer) -> SpecialTokens:
    begin = tokenizer.bos_token_id
    needs_begin = {"--boundary begin": recipe.boundary == "begin", "--begin block": recipe.begin == "block"}
    for option, is_set in needs_begin.items():
        if is_set and begin is None:
            raise CorpusError(f"{recipe.tokenizer}: {option} needs a begin token, which the tokenizer does not have.")
    if recipe.begin == "block" and recipe.packing != "stream":
        raise CorpusError(f"begin=block works with stream packing only, not with {recipe.packing} packing.")
    if recipe.packing == "paper":
        return SpecialTokens()
    before, after = _added_by(tokenizer)
    is_begin = begin is not None and before == (begin,)
    at_begin = SpecialTokens(before=() if begin is None else (begin,))
    at_end = SpecialTokens(after=(end_of_text(tokenizer),))
    if recipe.boundary != "auto":
        special = at_begin if recipe.boundary == "begin" else at_end
    elif recipe.packing == "document" and (before or after):
        special = SpecialTokens(before, after)
    else:
        special = at_begin if is_begin and not after else at_end
    in_blocks = recipe.packing == "stream" and (recipe.begin == "block" or (recipe.begin == "auto" and is_begin))
    if in_blocks and recipe.block < 3:
        raise CorpusError(f"block must be ≥ 3 for blocks that start with a begin token, got {recipe.block}.")
    return replace(special, block_start=begin) if in_blocks else special


def _added_by(tokenizer: FastTokenizer) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the tokens that the tokenizer itself writes before and after a text."""
    backend = tokenizer.backend_tokenizer
    plain, marked = (tuple(backend.encode(SENTENCE, add_special_tokens=added).ids) for added in (False, True))
    for start in range(len(marked) - len(plain) + 1):
        if marked[start : start + len(plain)] == plain:
            return marked[:start], marked[start + len(plain) :]
    return (), ()


class Packer:
    """Packs the documents of one split into blocks, writes them to a file, and counts tokens.

    `counts[0]` is how often each token occurs in the documents, `counts[1]` how often it is a label in the blocks.
    """

    def __init__(
        self,
        file: BinaryIO,
        recipe: Recipe,
        special: SpecialTokens,
        *,
        id_type: IdType,
        vocabulary: int,
        padding: int,
    ) -> None:
        self.file, self.recipe, self.special, self.id_type, self.padding = file, recipe, special, id_type, padding
        self.counts = np.zeros((2, vocabulary), dtype=np.int64)
        self.documents = self.characters = self.tokens = self.blocks = self.dropped = self.cut = 0
        self.lengths: list[int] = []  # of the blocks, with `document` packing
        self._ids: list[int] = []  # ids that are not counted yet, and not in a block yet unless they are in _rows
        self._rows: list[list[int]] = []  # blocks of `document` packing, without padding

    def add(self, ids: Iterable[list[int]], *, characters: int) -> None:
        """Add one document, whose ids come in parts so that those of a long one need not be in memory at once."""
        recipe, block = self.recipe, self.recipe.block
        self.documents += 1
        self.characters += characters
        if recipe.packing == "document":
            row = [*self.special.before, *chain.from_iterable(ids), *self.special.after]
            self.tokens += len(row) - len(self.special.before) - len(self.special.after)
            self._ids += row
            if len(row) < 2:  # there is no next token to predict
                self.dropped += len(row)
            else:
                self.cut += len(row) > block
                self.dropped += max(0, len(row) - block)
                self.lengths.append(min(len(row), block))
                self._rows.append(row[:block])
        else:
            self._ids += self.special.before
            for part in ids:
                self.tokens += len(part)
                self._ids += part
                if len(self._ids) >= max(BUFFERED_TOKENS, block):
                    self._write(drop_rest=False)
            self._ids += self.special.after
            if recipe.packing == "paper" and self.documents % GROUP == 0:
                self._write(drop_rest=True)
        if max(len(self._ids), len(self._rows) * block) >= max(BUFFERED_TOKENS, block):
            self._write(drop_rest=False)

    def finish(self, split: str) -> None:
        """Write the remaining blocks; raise CorpusError if the split has no block."""
        self._write(drop_rest=True)
        if not self.documents:
            raise CorpusError(
                f"{split}: no documents. Check the separator. If there are few documents, raise the held-out share, "
                "add documents, or give files for validation (a folder with train.txt and validation.txt)."
            )
        if not self.blocks and self.recipe.packing == "document":
            raise CorpusError(f"{split}: no document has two tokens or more. Give longer documents.")
        if not self.blocks:
            raise CorpusError(
                f"{split}: {self.tokens:,} tokens are fewer than one block of {self.recipe.block:,}. Choose a shorter "
                "--block, or give more text."
            )
        for token in (*self.special.before, *self.special.after):  # added tokens do not count as text
            self.counts[0, token] -= self.documents
        self.file.flush()
        os.fsync(self.file.fileno())

    def record(self) -> SplitRecord:
        """Return the split's numbers for corpus.json."""
        tokens, labels = self.counts
        return SplitRecord(
            documents=self.documents,
            characters=self.characters,
            tokens=self.tokens,
            types=int((tokens > 0).sum()),
            types_seen_once=int((tokens == 1).sum()),
            blocks=self.blocks,
            tokens_dropped=self.dropped,
            classes=int((labels > 0).sum()),
            id_type=self.id_type,
            samples=int(labels.sum()),
            documents_cut=self.cut,
        )

    def _write(self, *, drop_rest: bool) -> None:
        """Write the complete blocks, and drop the ids after the last one or keep them for the next call."""
        ids = np.array(self._ids, dtype=np.int64)
        if self.recipe.packing == "document":
            blocks, labels, used = *self._document_blocks(), len(ids)
        else:
            blocks, used = self._stream_blocks(ids)
            labels = blocks[:, 1 if self.special.block_start is None else 2 :].reshape(-1)
        self.file.write(blocks.astype(self.id_type).tobytes())
        self.blocks += len(blocks)
        self.counts[0] += np.bincount(ids if drop_rest else ids[:used], minlength=self.counts.shape[1])
        self.counts[1] += np.bincount(labels, minlength=self.counts.shape[1])
        self.dropped += len(ids) - used if drop_rest else 0
        self._ids, self._rows = [] if drop_rest else ids[used:].tolist(), []

    def _document_blocks(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the padded blocks, and their labels without the padding."""
        blocks = np.full((len(self._rows), self.recipe.block), self.padding, dtype=np.int64)
        for number, row in enumerate(self._rows):
            blocks[number, : len(row)] = row
        lengths = np.array([len(row) for row in self._rows], dtype=np.int64)
        return blocks, blocks[:, 1:][np.arange(1, self.recipe.block) < lengths[:, None]]

    def _stream_blocks(self, ids: NDArray[np.int64]) -> tuple[NDArray[np.int64], int]:
        """Return all complete blocks, and the number of ids in them.

        A block that starts inside a document gets the block-start token first. A block that starts with a document
        already has it.
        """
        start, block = self.special.block_start, self.recipe.block
        if start is None:
            used = len(ids) // block * block
            return ids[:used].reshape(-1, block), used
        rows: list[NDArray[np.int64]] = []
        used = 0
        while True:
            has_start = used < len(ids) and ids[used] == start
            stop = used + block - (not has_start)
            if stop > len(ids):
                return np.array(rows, dtype=np.int64).reshape(-1, block), used
            rows.append(ids[used:stop] if has_start else np.concatenate([[start], ids[used:stop]]))
            used = stop


def _tokenise(source: Source, tokenizer: Tokenizer, recipe: Recipe, train: Packer, validation: Packer) -> None:
    """Give every document to the packer of its split, up to `max_tokens`."""
    most = math.inf if recipe.max_tokens is None else recipe.max_tokens
    if source.validation is not None:
        for name, documents, packer in (("train", source.train, train), ("validation", source.validation, validation)):
            with progress(f"tokenising {name}", total=documents.total, unit=documents.unit) as advance:
                for text, ids in _encoded(documents, tokenizer, advance):
                    packer.add(ids, characters=len(text))
                    if packer.tokens >= most:
                        break
        return
    # With `max_tokens`, reading goes on until validation has a block, and half of the tokens that its share lets
    # expect: possibly none of the first documents is held out.
    share = recipe.validation_share
    least = max(recipe.block, most * share / (1 - share) / 2 if share < 1 else most)
    with progress("tokenising both splits", total=source.train.total, unit=source.train.unit) as advance:
        for number, (text, ids) in enumerate(_encoded(source.train, tokenizer, advance)):
            if _is_held_out(number, recipe):
                validation.add(ids, characters=len(text))
            elif train.tokens < most:
                train.add(ids, characters=len(text))
            if train.tokens >= most and validation.tokens >= least:
                break


def _encoded(documents: Documents, tokenizer: Tokenizer, advance: Advance) -> Iterator[tuple[str, Iterable[list[int]]]]:
    is_cuttable = _can_be_cut(tokenizer)
    for batch in _batches(documents.open()):
        short = [document for document in batch if len(document) <= LONG_DOCUMENT or not is_cuttable]
        encodings = iter(_token_ids(tokenizer, short))
        for document in batch:
            if len(document) <= LONG_DOCUMENT or not is_cuttable:
                yield document, [next(encodings)]
                continue
            # The library takes hundreds of bytes for each token of a text that it encodes at once.
            yield document, (_token_ids(tokenizer, [part])[0] for part in parts_of(document))
        advance(sum(map(documents.size, batch)))


def _token_ids(tokenizer: Tokenizer, texts: list[str]) -> list[list[int]]:
    try:
        return [encoding.ids for encoding in tokenizer.encode_batch_fast(texts, add_special_tokens=False)]
    except BaseException as error:  # a panic of the Rust library is not an Exception
        if type(error).__name__ != "PanicException":
            raise
        raise CorpusError(
            f"the tokenizer failed on this text: {error}. The regular expression by which it splits words may need too "
            "many steps."
        ) from None


def _can_be_cut(tokenizer: Tokenizer) -> bool:
    """Return whether a text that is cut before a space has the same tokens; some tokenizers add a space to it."""
    cut = SENTENCE.index(" girl")
    texts = (SENTENCE, SENTENCE[:cut], SENTENCE[cut:])
    whole, first, second = (tokenizer.encode(text, add_special_tokens=False).ids for text in texts)
    return bool(whole == first + second)


def _batches(documents: Iterator[str]) -> Iterator[list[str]]:
    batch: list[str] = []
    characters = 0
    for document in documents:
        batch.append(document)
        characters += len(document)
        if len(batch) >= BATCH_DOCUMENTS or characters >= BATCH_CHARACTERS:
            yield batch
            batch, characters = [], 0
    if batch:
        yield batch
