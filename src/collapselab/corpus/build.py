"""Documents to blocks: tokenise, pack, count, write. The folder appears when everything in it is finished.

`stream` packing marks every document and cuts the stream of all documents into blocks; only the last remainder of a
split is dropped. The mark is the end-of-text token after a document, or the begin token before it where the tokenizer
itself puts one there and nothing at the end, as Llama's: a model sees what it was trained on. `paper` packing joins
groups of 1,000 documents without a separator and drops each group's remainder, as Linguistic Collapse did.
"""

import hashlib
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, BinaryIO, Literal, final

import numpy as np
from numpy.typing import NDArray

from collapselab.corpus.blocks import FORMAT, Corpus, read_facts
from collapselab.corpus.sources import Documents, Source
from collapselab.corpus.vocabulary import SENTENCE, tokenizer_for
from collapselab.disk import folder_written_whole, sha256
from collapselab.errors import CorpusError
from collapselab.progress import progress

GROUP = 1000
"""Documents that `paper` packing joins."""

BATCH_DOCUMENTS, BATCH_CHARACTERS = 512, 1 << 20
"""What is tokenised at once, at the most: enough to keep every core busy, little enough not to be felt in memory."""


@dataclass(frozen=True)
class Recipe:
    """Everything that decides the bytes of a corpus besides its source."""

    tokenizer: str = "bpe:4096"
    block: int = 512
    packing: Literal["stream", "paper"] = "stream"
    boundary: Literal["auto", "end", "begin"] = "auto"
    id_type: Literal["auto", "uint16", "uint32"] = "auto"
    validation_share: float = 0.02
    seed: int = 0


def build_corpus(source: Source, out: str | Path, recipe: Recipe | None = None, *, trust_code: bool = False) -> Corpus:
    """Build the corpus, or open it if just this one is there already.

    Nothing is left behind by a failure, and nothing that was there before is touched. `trust_code` lets a tokenizer run
    code that comes with it.
    """
    recipe, out = recipe or Recipe(), Path(out)
    request = {"source": source.provenance, **asdict(recipe)}
    if _is_built(out, request):
        return Corpus(out)
    if recipe.block < 2:
        raise CorpusError(f"block is {recipe.block}; a block needs a token and its next, at least 2.")
    with folder_written_whole(out) as partial:
        _write(source, recipe, request, partial, trust_code=trust_code)
    return Corpus(out)


def _is_built(out: Path, request: dict[str, Any]) -> bool:
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return False
    if not out.is_dir() or not (out / "corpus.json").exists():
        raise CorpusError(f"{out}: holds something else, and nothing is overwritten. Name another folder.")
    built = read_facts(out)["request"]
    request = json.loads(json.dumps(request))
    changed = sorted(key for key in request.keys() | built.keys() if request.get(key) != built.get(key))
    if changed:
        differences = "; ".join(f"{key} was {built.get(key)!r}, now {request.get(key)!r}" for key in changed)
        raise CorpusError(f"{out}: holds another corpus ({differences}). Name another folder, or delete this one.")
    return True


def _write(source: Source, recipe: Recipe, request: dict[str, Any], folder: Path, *, trust_code: bool) -> None:
    tokenizer = tokenizer_for(recipe.tokenizer, _training_documents(source, recipe), trust_code=trust_code)
    vocabulary = len(tokenizer)
    id_type = _id_type(recipe.id_type, vocabulary)
    boundary, mark = _boundary(recipe, tokenizer)
    counts = np.zeros((2, 2, vocabulary), dtype=np.int64)
    with (folder / "train.bin").open("wb") as first, (folder / "validation.bin").open("wb") as second:
        train = _Packer(first, recipe, boundary, mark, id_type, counts[0])
        validation = _Packer(second, recipe, boundary, mark, id_type, counts[1])
        backend = tokenizer.backend_tokenizer
        if source.validation is None:
            _tokenise("both splits", source.train, backend, lambda n: validation if _is_held_out(n, recipe) else train)
        else:
            _tokenise("train", source.train, backend, lambda _: train)
            _tokenise("validation", source.validation, backend, lambda _: validation)
        for packer in (train, validation):
            packer.finish()
    splits = {"train": train.facts("train"), "validation": validation.facts("validation")}
    np.save(folder / "counts.npy", counts)
    tokenizer.save_pretrained(folder / "tokenizer")
    names = ["train.bin", "validation.bin", "counts.npy", "tokenizer/tokenizer.json"]
    files = {name: {"bytes": (folder / name).stat().st_size, "sha256": sha256(folder / name)} for name in names}
    facts = {
        "format": FORMAT,
        "hash": hashlib.sha256(json.dumps([recipe.block, files], sort_keys=True).encode()).hexdigest()[:16],
        "request": request,
        "block": recipe.block,
        "vocabulary": vocabulary,
        "end_of_text": tokenizer.eos_token_id,
        "boundary": boundary,
        "splits": splits,
        "files": files,
        "versions": {name: version(name) for name in ("collapselab", "tokenizers", "transformers")},
    }
    (folder / "corpus.json").write_text(json.dumps(facts, indent=1, ensure_ascii=False) + "\n")


def _id_type(wanted: str, vocabulary: int) -> str:
    if wanted == "auto":
        return "uint16" if vocabulary <= 1 << 16 else "uint32"
    if vocabulary - 1 > np.iinfo(wanted).max:
        raise CorpusError(f"the tokenizer has {vocabulary:,} tokens, more than {wanted} can hold. Use --id-type auto.")
    return wanted


def _boundary(recipe: Recipe, tokenizer: Any) -> tuple[str, int]:
    """Where documents are marked, and with which token; `none` for paper packing."""
    if recipe.packing == "paper":
        return "none", tokenizer.eos_token_id
    backend, begin = tokenizer.backend_tokenizer, tokenizer.bos_token_id
    plain, marked = (backend.encode(SENTENCE, add_special_tokens=special).ids for special in (False, True))
    if recipe.boundary == "begin" and begin is None:
        raise CorpusError(f"{recipe.tokenizer}: the tokenizer has no begin token. Use --boundary end.")
    if recipe.boundary == "begin" or (recipe.boundary == "auto" and marked == [begin, *plain]):
        return "begin", begin
    return "end", tokenizer.eos_token_id


def _tokenise(what: str, documents: Documents, tokenizer: Any, pick: Callable[[int], "_Packer"]) -> None:
    number = 0
    with progress(f"tokenising {what}", total=documents.total, unit=documents.unit) as advance:
        for batch in _batches(documents.open()):
            for document, encoding in zip(
                batch, tokenizer.encode_batch_fast(batch, add_special_tokens=False), strict=True
            ):
                pick(number).add(encoding.ids, characters=len(document))
                number += 1
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


@final
class _Packer:
    """Documents of token ids in, whole blocks out, counted on the way."""

    def __init__(
        self, file: BinaryIO, recipe: Recipe, boundary: str, mark: int, id_type: str, counts: NDArray[np.int64]
    ) -> None:
        self.file, self.recipe, self.boundary, self.mark, self.id_type = file, recipe, boundary, mark, id_type
        self.token_counts, self.label_counts = counts
        self.documents = self.tokens = self.blocks = self.dropped = self.characters = 0
        self._waiting: list[int] = []

    def add(self, ids: list[int], *, characters: int) -> None:
        self.documents += 1
        self.characters += characters
        self.tokens += len(ids)
        if self.boundary == "begin":
            self._waiting.append(self.mark)
        self._waiting += ids
        if self.boundary == "end":
            self._waiting.append(self.mark)
        if self.recipe.packing == "paper" and self.documents % GROUP == 0:
            self._cut(drop=True)
        if len(self._waiting) >= max(1 << 18, self.recipe.block):
            self._cut(drop=False)

    def finish(self) -> None:
        self._cut(drop=True)
        self.file.flush()
        os.fsync(self.file.fileno())

    def _cut(self, *, drop: bool) -> None:
        ids = np.array(self._waiting, dtype=np.int64)
        blocks, block = len(ids) // self.recipe.block, self.recipe.block
        rest = ids[blocks * block :]
        whole = ids[: blocks * block].reshape(blocks, block)
        self.file.write(whole.astype(self.id_type).tobytes())
        self.blocks += blocks
        self.label_counts += np.bincount(whole[:, 1:].reshape(-1), minlength=len(self.label_counts))
        self.token_counts += np.bincount(ids if drop else whole.reshape(-1), minlength=len(self.token_counts))
        self.dropped += len(rest) if drop else 0
        self._waiting = [] if drop else rest.tolist()

    def facts(self, split: str) -> dict[str, Any]:
        if not self.documents:
            raise CorpusError(f"{split}: no documents. Is the separator right, or the held-out share too small?")
        if not self.blocks:
            raise CorpusError(
                f"{split}: {self.tokens:,} tokens do not fill one block of {self.recipe.block:,}. "
                "Choose a shorter --block, or give more text."
            )
        if self.boundary != "none":  # the counts are of the documents; the marks are ours
            self.token_counts[self.mark] -= self.documents
        return {
            "documents": self.documents,
            "characters": self.characters,
            "tokens": self.tokens,
            "types": int((self.token_counts > 0).sum()),
            "types_seen_once": int((self.token_counts == 1).sum()),
            "blocks": self.blocks,
            "tokens_dropped": self.dropped,
            "classes": int((self.label_counts > 0).sum()),
            "id_type": self.id_type,
        }
