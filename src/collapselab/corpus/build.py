"""Documents to blocks: tokenise, pack, count, write. The folder appears when everything in it is finished.

`stream` packing marks every document and cuts the stream of all documents into blocks; only the last remainder of a
split is dropped. The mark is the end-of-text token after a document, or the begin token before it where the tokenizer
itself puts one there and nothing at the end, as Llama's: a model sees what it was trained on. A source that is one
endless text has no marks. Where the tokenizer
writes a begin token, every block begins with one too. `paper` packing joins groups of 1,000 documents without a
separator and drops each group's remainder, as Linguistic Collapse did. `document` packing gives each document a block
of its own, with the marks that the tokenizer writes.
"""

import hashlib
import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import BinaryIO, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import JsonValue
from tokenizers import Tokenizer

from collapselab.corpus.blocks import Corpus
from collapselab.corpus.packing import DocumentPacker, IdType, Marks, Packer, StreamPacker
from collapselab.corpus.sources import Documents, Source, open_source
from collapselab.corpus.tokenizer import SENTENCE, WORDS, FastTokenizer, end_of_text, tokenizer_for, tokenizer_hash
from collapselab.disk import folder_written_whole, sha256
from collapselab.errors import CorpusError
from collapselab.progress import progress
from collapselab.records.corpus import (
    CORPUS,
    LENGTHS,
    CorpusRecord,
    FileRecord,
    RequestRecord,
    SplitRecords,
    read_corpus_record,
)

GROUP = 1000
"""Documents that `paper` packing joins."""

BATCH_DOCUMENTS, BATCH_CHARACTERS = 512, 1 << 20
"""The most that is tokenised at once: enough to keep every core busy, and few megabytes of memory."""


Pick = Callable[[int], Packer | None]
"""The packer of the split that a document belongs to, by the document's number."""

Request = dict[str, JsonValue]
"""Source and recipe of a corpus, as corpus.json has them."""


@dataclass(frozen=True)
class Recipe:
    """Everything that decides the bytes of a corpus besides its source.

    >>> from collapselab import Recipe
    >>> Recipe(tokenizer="bpe:1024").block
    512
    """

    tokenizer: str = "bpe:4096"
    block: int = 512
    packing: Literal["stream", "paper", "document"] = "stream"
    boundary: Literal["auto", "end", "begin"] = "auto"
    begin: Literal["auto", "block", "document"] = "auto"
    """Where a begin token is: at the head of every block, or of documents alone. auto: of every block for tokenizers
    that write one."""
    id_type: Literal["auto", "uint16", "uint32"] = "auto"
    validation_share: float = 0.02
    seed: int = 0
    max_tokens: int | None = None
    """Reading stops when the training split has this number of tokens; validation has no more either."""


def default_tokenizer(sources: Sequence[str]) -> str:
    """The tokenizer of a source where none is named."""
    kind = sources[0].partition(":")[0] if sources else ""
    return {"tinystories": "gpt2", "markov": WORDS}.get(kind, Recipe.tokenizer)


def build_corpus(
    source: Source | str | Sequence[str],
    out: str | Path,
    recipe: Recipe | None = None,
    *,
    trust_code: bool = False,
) -> Corpus:
    """Build the corpus, or open it if the same corpus is there already.

    >>> from collapselab import Recipe, build_corpus
    >>> recipe = Recipe(tokenizer="bpe:300", block=64)
    >>> build_corpus("storyworld:stories=20,validation=4", "corpora/stories", recipe)
    Corpus('corpora/stories': 173 + 31 blocks of 64 tokens; vocabulary 300)

    `source` is what `collapselab corpus build` takes, one name or several, or the `Source` that `open_source` makes of
    it. Nothing is left behind by a failure, and nothing that was there before is touched. `trust_code` lets a tokenizer
    run code that comes with it.
    """
    recipe, out = recipe or Recipe(), Path(out)
    if not isinstance(source, Source):
        names = [source] if isinstance(source, str) else list(source)
        source = open_source(names, validation_share=recipe.validation_share)
    request: Request = json.loads(json.dumps({"source": source.provenance, **asdict(recipe)}))
    if _is_built(out, request):
        return Corpus(out)
    if recipe.max_tokens is not None and recipe.max_tokens < 1:
        raise CorpusError(f"max_tokens is {recipe.max_tokens}; at least one token is needed.")
    if recipe.block < 2:
        raise CorpusError(f"block is {recipe.block}; a block needs a token and its next, at least 2.")
    with folder_written_whole(out) as partial:
        _write(source, recipe, request, partial, trust_code=trust_code)
    return Corpus(out)


def _is_built(out: Path, request: Request) -> bool:
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return False
    if not out.is_dir() or not (out / CORPUS).exists():
        raise CorpusError(f"{out}: holds something else, and nothing is overwritten. Name another folder.")
    built = _completed(read_corpus_record(out))
    changed = sorted(key for key in request.keys() | built.keys() if request.get(key) != built.get(key))
    if changed:
        differences = "; ".join(f"{key} was {built.get(key)!r}, now {request.get(key)!r}" for key in changed)
        raise CorpusError(f"{out}: holds another corpus ({differences}). Name another folder, or delete this one.")
    return True


def _completed(record: CorpusRecord) -> Request:
    """The request that built a corpus, with the defaults of fields that recipes have had since then."""
    known: Request = asdict(Recipe())
    if record.begin is None and record.boundary == "begin":
        known["begin"] = "document"  # as earlier versions built it
    return known | record.request.model_dump()


def _write(source: Source, recipe: Recipe, request: Request, folder: Path, *, trust_code: bool) -> None:
    documents = _training_documents(source, recipe)
    tokenizer = tokenizer_for(recipe.tokenizer, documents, words=source.words, trust_code=trust_code)
    vocabulary = len(tokenizer)
    id_type = _id_type(recipe.id_type, vocabulary)
    marks = _no_marks(recipe) if source.joined else _marks(recipe, tokenizer)
    counts = np.zeros((2, 2, vocabulary), dtype=np.int64)
    with (folder / "train.bin").open("wb") as first, (folder / "validation.bin").open("wb") as second:
        train = _packer(first, counts[0], recipe, marks, id_type, end_of_text(tokenizer))
        validation = _packer(second, counts[1], recipe, marks, id_type, end_of_text(tokenizer))
        backend = tokenizer.backend_tokenizer
        if source.validation is None:
            _tokenise_both(source.train, backend, train, validation, recipe)
        else:
            most, held_out = _most(recipe), source.validation
            _tokenise("train", source.train, backend, lambda _: train, lambda: train.counted.tokens >= most)
            _tokenise("validation", held_out, backend, lambda _: validation, lambda: validation.counted.tokens >= most)
        train.finish("train")
        validation.finish("validation")
    np.save(folder / "counts.npy", counts)
    if recipe.packing == "document":
        np.save(folder / LENGTHS, np.array(train.counted.lengths + validation.counted.lengths, dtype=np.int32))
    tokenizer.save_pretrained(folder / "tokenizer")
    if source.write is not None:
        source.write(folder)
    record = CorpusRecord(
        hash="",
        request=RequestRecord.model_validate(request),
        block=recipe.block,
        vocabulary=vocabulary,
        end_of_text=tokenizer.eos_token_id,
        boundary=marks.boundary,
        begin=marks.begin,
        tokenizer_hash=tokenizer_hash(tokenizer),
        splits=SplitRecords(train=train.counted.record(id_type), validation=validation.counted.record(id_type)),
        files=_files(folder),
        versions={name: version(name) for name in ("collapselab", "tokenizers", "transformers")},
    )
    record.model_copy(update={"hash": record.contents_hash()}).write(folder / CORPUS)


def _files(folder: Path) -> dict[str, FileRecord]:
    """Size and checksum of everything in the folder, by path."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return {
        path.relative_to(folder).as_posix(): FileRecord(bytes=path.stat().st_size, sha256=sha256(path))
        for path in paths
    }


def _id_type(wanted: Literal["auto", "uint16", "uint32"], vocabulary: int) -> IdType:
    if wanted == "auto":
        return "uint16" if vocabulary <= 1 << 16 else "uint32"
    if vocabulary - 1 > np.iinfo(wanted).max:
        raise CorpusError(f"the tokenizer has {vocabulary:,} tokens, more than {wanted} can hold. Use --id-type auto.")
    return wanted


def _no_marks(recipe: Recipe) -> Marks:
    if recipe.boundary != "auto" or recipe.begin != "auto":
        raise CorpusError("the source is one text without documents; it has no marks for --boundary and --begin.")
    return Marks([], [])


def _marks(recipe: Recipe, tokenizer: FastTokenizer) -> Marks:
    """The tokens that are put before and after documents, and at the head of blocks."""
    begin = tokenizer.bos_token_id
    needs_begin = {"--boundary begin": recipe.boundary == "begin", "--begin block": recipe.begin == "block"}
    for option, is_set in needs_begin.items():
        if is_set and begin is None:
            raise CorpusError(f"{recipe.tokenizer}: the tokenizer has no begin token, which {option} needs.")
    if recipe.begin == "block" and recipe.packing != "stream":
        raise CorpusError(
            f"begin is block, but with {recipe.packing} packing no block begins inside a marked document."
        )
    if recipe.packing == "paper":
        return Marks([], [])
    before, after = _written(tokenizer)
    at_begin = Marks([] if begin is None else [begin], [])
    at_end = Marks([], [end_of_text(tokenizer)])
    if recipe.boundary != "auto":
        marks = at_begin if recipe.boundary == "begin" else at_end
    elif recipe.packing == "document" and (before or after):
        marks = Marks(before, after)
    else:
        marks = at_begin if before == [begin] and not after else at_end
    in_blocks = recipe.packing == "stream" and (
        recipe.begin == "block" or (recipe.begin == "auto" and before == [begin])
    )
    if in_blocks and recipe.block < 3:
        raise CorpusError(f"block is {recipe.block}; one with a begin token at its head needs at least 3 tokens.")
    return replace(marks, head=begin) if in_blocks else marks


def _written(tokenizer: FastTokenizer) -> tuple[list[int], list[int]]:
    """What the tokenizer itself writes before and after a text."""
    backend = tokenizer.backend_tokenizer
    plain, marked = (backend.encode(SENTENCE, add_special_tokens=special).ids for special in (False, True))
    for start in range(len(marked) - len(plain) + 1):
        if marked[start : start + len(plain)] == plain:
            return marked[:start], marked[start + len(plain) :]
    return [], []


def _packer(
    file: BinaryIO, counts: NDArray[np.int64], recipe: Recipe, marks: Marks, id_type: str, padding: int
) -> Packer:
    if recipe.packing == "document":
        return DocumentPacker(file, counts, block=recipe.block, marks=marks, id_type=id_type, padding=padding)
    group = GROUP if recipe.packing == "paper" else 0
    return StreamPacker(file, counts, block=recipe.block, marks=marks, id_type=id_type, group=group)


def _most(recipe: Recipe) -> float:
    """Tokens after which reading stops."""
    return math.inf if recipe.max_tokens is None else recipe.max_tokens


def _tokenise_both(
    documents: Documents, tokenizer: Tokenizer, train: Packer, validation: Packer, recipe: Recipe
) -> None:
    """Documents of one source to both splits. With `max_tokens`, until training has them, and validation half of what
    its share lets expect, and a block: of the first documents, none may be held out."""
    most, share = _most(recipe), recipe.validation_share
    least = max(recipe.block, most * share / (1 - share) / 2 if share < 1 else most)

    def pick(number: int) -> Packer | None:
        if _is_held_out(number, recipe):
            return validation
        return train if train.counted.tokens < most else None

    def is_enough() -> bool:
        return train.counted.tokens >= most and validation.counted.tokens >= least

    _tokenise("both splits", documents, tokenizer, pick, is_enough)


def _tokenise(what: str, documents: Documents, tokenizer: Tokenizer, pick: Pick, is_enough: Callable[[], bool]) -> None:
    """Give every document to the packer of its split, if that takes more, until there is enough."""
    number = 0
    with progress(f"tokenising {what}", total=documents.total, unit=documents.unit) as advance:
        for batch in _batches(documents.open()):
            for document, encoding in zip(
                batch, tokenizer.encode_batch_fast(batch, add_special_tokens=False), strict=True
            ):
                if (packer := pick(number)) is not None:
                    packer.add(encoding.ids, characters=len(document))
                number += 1
                if is_enough():
                    return
            advance(sum(documents.size(document) for document in batch))


def _training_documents(source: Source, recipe: Recipe) -> Documents:
    if source.validation is not None:
        return source.train

    def training() -> Iterator[str]:
        return (text for n, text in enumerate(source.train.open()) if not _is_held_out(n, recipe))

    return replace(source.train, open=training)


def _is_held_out(number: int, recipe: Recipe) -> bool:
    """Whether a document is validation, where the source has none: a seeded share, whatever else is in the source."""
    digest = hashlib.blake2b(f"{recipe.seed} {number}".encode(), digest_size=8).digest()
    return int.from_bytes(digest) < recipe.validation_share * 2**64


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
