"""Tokenizers: a folder's, a GGUF file's, the hub's, or one trained here on the training documents.

`load_tokenizer` is the only place of the project that loads one. Code that comes with a tokenizer runs only if the
user trusts it, and no question is put on the terminal. Before a corpus is built with a tokenizer, it is checked on one
sentence: a tokenizer whose files are incomplete can load without an error and encode nothing.
"""

import hashlib
import json
import re
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Protocol

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from collapselab.corpus.sources import END_OF_TEXT, Documents
from collapselab.errors import CorpusError, UserError
from collapselab.hub import Pretrained, cached_folder, download_command, hub_answers, hub_id, in_gguf
from collapselab.progress import progress

SENTENCE = "Once upon a time, there was a little girl named Lily."

PROBES = (
    SENTENCE,
    "once  upon   a time ONCE UPON A TIME",
    " leading and trailing \n\n\n\tx = [i for i in range(1234567)]  \r\n",
    "They'll say I'M sure we've 12 345,67 or 3.14e-5; isn't it? \"Yes!\" (no) — “maybe”… #1 & 50 % @home_page",
    "cafe\u0301 café naïve Straße ﬁne ① ２３ Ａ",
    "Ελλάδα Россия 日本語の文章 한국어 עברית العربية ไทย हिन्दी 👩‍👩‍👧 🏳️‍🌈 𓀀 \u00a0\u200b\u2028",
    "<unk> </s> <|nothing|> [MASK] https://example.org/a?b=c&d=e",
)
"""Texts on which tokenizers differ: spaces, digits, case, accents, compatibility forms, scripts, unknown characters."""

LARGEST_TRAINED = 1_000_000
WORDS = "words"
"""The tokenizer of a source that has tokens of its own."""
CHARACTERS = "characters"
"""The tokenizer whose tokens are the characters of the training documents."""
UNKNOWN, MOST_CHARACTERS = "<unk>", 4096
TOKENIZER_FILES = ("*token*", "vocab*", "merges.txt", "*.model", "tekken.json")


class FastTokenizer(Protocol):
    """What is used of a tokenizer of the library. A slow one has no `backend_tokenizer`."""

    eos_token_id: int | None
    bos_token_id: int | None
    backend_tokenizer: Tokenizer
    special_tokens_map: dict[str, str]

    def __len__(self) -> int: ...
    def get_vocab(self) -> dict[str, int]: ...
    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]: ...
    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool = False) -> str: ...
    def save_pretrained(self, folder: Path) -> object: ...


def tokenizer_for(
    name: str, documents: Documents, *, words: Sequence[str] | None = None, trust_code: bool = False
) -> "FastTokenizer":
    """A fast tokenizer to build a corpus with: `bpe:SIZE` and `characters` are made of the documents, others loaded.

    `words` are those of a source that has tokens of its own, for the tokenizer of that name.
    """
    if (name == WORDS) != (words is not None):
        raise CorpusError(
            f"tokenizer {name}: "
            + (
                f"this source has tokens of its own, which {WORDS} keeps as they are. Use --tokenizer {WORDS}."
                if words is not None
                else "only a source with tokens of its own (markov) has a list of words. Use bpe:4096."
            )
        )
    if words is not None:
        tokenizer = _of_words(words)
    elif name.startswith("bpe:"):
        tokenizer = _trained(name, documents)
    elif name == CHARACTERS:
        tokenizer = _of_characters(documents)
    else:
        tokenizer = _without_code(load_tokenizer(name, trust_code=trust_code), name)
    backend = tokenizer.backend_tokenizer
    backend.no_truncation()  # a tokenizer.json may ask for both, and documents are to be encoded as they are
    backend.no_padding()
    encoded = backend.encode(SENTENCE, add_special_tokens=False).ids
    if not encoded or len(encoded) > 4 * len(SENTENCE):
        raise CorpusError(
            f"{name}: the tokenizer makes {len(encoded)} tokens of {SENTENCE!r}; its files are incomplete."
        )
    end_of_text(tokenizer, name)
    return tokenizer


def end_of_text(tokenizer: FastTokenizer, name: str = "") -> int:
    """The id of the end-of-text token, which every corpus needs."""
    if tokenizer.eos_token_id is None:
        raise CorpusError(f"{name}: the tokenizer has no end-of-text token, which ends every document.")
    return tokenizer.eos_token_id


def load_tokenizer(name: str | Path, *, trust_code: bool = False) -> "FastTokenizer":
    """The tokenizer of a folder, of a `.gguf` file, or of a name on the hub (`id` or `id@revision`)."""
    place = _place_of(str(name))
    from transformers import AutoTokenizer  # after what can be refused without it: this import takes seconds

    library: Any = AutoTokenizer
    try:
        tokenizer: FastTokenizer = library.from_pretrained(trust_remote_code=trust_code, **place.arguments)
    except UserError:  # a signal that stops the work
        raise
    except Exception as error:  # the library's Rust part raises Exception itself
        raise _refusal(str(name), error) from error
    return tokenizer


def tokenizer_hash(tokenizer: "FastTokenizer") -> str:
    """A hash, in 16 hex digits, of which token ids a tokenizer makes of a text.

    It is over the vocabulary with its added tokens, the model's merges or scores, and the ids of
    `PROBES` with and without special tokens. Normaliser and pre-tokenizer count by what they do to the probes, not by
    how they are written down: a GGUF file and a later version of the library write the same ones differently.
    """
    parts: list[object] = [sorted(tokenizer.get_vocab().items(), key=lambda item: (item[1], item[0]))]
    if getattr(tokenizer, "is_fast", False):
        model = json.loads(tokenizer.backend_tokenizer.to_str())["model"]
        scores = model["vocab"] if isinstance(model.get("vocab"), list) else None  # of a unigram model
        parts += [model["type"], model.get("merges"), scores]
    for special in (False, True):
        parts.append([tokenizer.encode(text, add_special_tokens=special) for text in PROBES])
    return hashlib.blake2b(json.dumps(parts).encode(), digest_size=8).hexdigest()


def _place_of(name: str) -> Pretrained:
    """Where the library finds a tokenizer; if the hub does not answer, only its cache is searched."""
    path = Path(name)
    if path.is_dir():
        return _in_folder(path)
    if path.is_file():
        if path.suffix != ".gguf":
            raise CorpusError(f"{name}: a file. A tokenizer is a folder with a tokenizer.json, or a .gguf file.")
        return _in_gguf(path)
    known = None if path.suffix == ".gguf" else hub_id(name)
    if known is None:
        raise _not_loaded(name, "no such folder or file, and not a name on the hub")
    identity, revision = known
    if hub_answers():
        return Pretrained(identity, revision=revision, is_local=False)
    cached = (cached_folder(identity, revision, file=file) for file in ("tokenizer.json", "tokenizer_config.json"))
    folder = next(filter(None, cached), None)
    if folder is None:
        raise CorpusError(
            f"{name}: the tokenizer cannot be loaded (no such folder here, not in the hub's cache, and the hub cannot "
            f"be reached). Fetch it where there is a network ({download_command(identity, revision)}) and name that "
            "folder, or train one: --tokenizer bpe:4096."
        )
    return _in_folder(folder)


def _in_folder(path: Path) -> Pretrained:
    if any(True for pattern in TOKENIZER_FILES for _ in path.glob(pattern)):
        return Pretrained(str(path))
    packed = sorted(path.glob("*.gguf"))
    if len(packed) == 1:
        return _in_gguf(packed[0])
    if packed:
        raise CorpusError(f"{path}: {len(packed)} .gguf files; name one of them, such as {packed[0]}.")
    raise CorpusError(
        f"{path}: the folder holds no tokenizer (no tokenizer.json). Name the folder or the hub's name of the model "
        "whose tokenizer you want."
    )


def _in_gguf(path: Path) -> Pretrained:
    place = in_gguf(path)
    if place is None:
        raise CorpusError(f"{path}: GGUF files need the package gguf. Install collapselab[gguf].")
    return place


def _refusal(name: str, error: Exception) -> CorpusError:
    if "trust_remote_code" in str(error):
        return CorpusError(
            f"{name}: the tokenizer comes with its own code, which runs only if you trust it. Read it, then use "
            "`collapselab corpus build` with --trust-code."
        )
    cause = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
    return _not_loaded(name, cause if len(cause) <= 200 else f"{cause[:200]} …")


def _not_loaded(name: str, cause: str) -> CorpusError:
    return CorpusError(
        f"{name}: the tokenizer cannot be loaded ({cause}). Name a folder that holds a tokenizer.json, or train one: "
        "--tokenizer bpe:4096."
    )


def _without_code(tokenizer: "FastTokenizer", name: str) -> "FastTokenizer":
    """The tokenizer in a class of the library, so that the corpus opens without code of others."""
    if not getattr(tokenizer, "is_fast", False):
        raise CorpusError(f"{name}: {type(tokenizer).__name__} has no fast form; one with a tokenizer.json is needed.")
    if type(tokenizer).__module__.startswith("transformers."):
        return tokenizer
    return _fast(tokenizer.backend_tokenizer, **tokenizer.special_tokens_map)


def _trained(name: str, documents: Documents) -> "FastTokenizer":
    size = name.removeprefix("bpe:")
    if not re.fullmatch("[0-9]{1,7}", size) or not 257 <= int(size) <= LARGEST_TRAINED:
        raise CorpusError(
            f"{name}: write bpe:SIZE with at least 257 tokens, one a byte and the end of text, and at most "
            f"{LARGEST_TRAINED:,}."
        )
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=int(size),
        special_tokens=[END_OF_TEXT],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    stopped = threading.Event()
    with progress(f"training {name}", total=documents.total, unit=documents.unit) as advance:

        def counted() -> Iterator[str]:
            for document in documents.open():
                if stopped.is_set():
                    return
                advance(documents.size(document))
                yield document

        # In a thread of its own: while the library trains in the main thread, no signal is noticed.
        with ThreadPoolExecutor(max_workers=1) as pool:
            training = pool.submit(tokenizer.train_from_iterator, counted(), trainer)
            try:
                training.result()
            finally:
                stopped.set()
    return _fast(tokenizer, eos_token=END_OF_TEXT, bos_token=END_OF_TEXT, clean_up_tokenization_spaces=False)


def _of_words(words: Sequence[str]) -> "FastTokenizer":
    """Word n is token n, the end of text the token after the last; any other word is the end of text too."""
    ids = {word: number for number, word in enumerate([*words, END_OF_TEXT])}
    tokenizer = Tokenizer(models.WordLevel(ids, unk_token=END_OF_TEXT))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return _fast(tokenizer, eos_token=END_OF_TEXT, bos_token=END_OF_TEXT, clean_up_tokenization_spaces=False)


def _of_characters(documents: Documents) -> "FastTokenizer":
    """A token for each character of the documents, in their order in Unicode; the rarest beyond a limit are unknown."""
    counts: Counter[str] = Counter()
    with progress("counting characters", total=documents.total, unit=documents.unit) as advance:
        for document in documents.open():
            advance(documents.size(document))
            counts.update(document)
    kept = sorted(counts, key=lambda character: (-counts[character], character))[:MOST_CHARACTERS]
    ids = {token: number for number, token in enumerate([END_OF_TEXT, UNKNOWN, *sorted(kept)])}
    tokenizer = Tokenizer(models.WordLevel(ids, unk_token=UNKNOWN))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), behavior="isolated")
    tokenizer.decoder = decoders.Fuse()
    # The library does not know the unknown token: it would take the word itself, where a text has it, for one.
    return _fast(tokenizer, eos_token=END_OF_TEXT, bos_token=END_OF_TEXT, clean_up_tokenization_spaces=False)


def _fast(tokenizer: Tokenizer, **settings: object) -> "FastTokenizer":
    from transformers import PreTrainedTokenizerFast

    library: Any = PreTrainedTokenizerFast
    fast: FastTokenizer = library(tokenizer_object=tokenizer, **settings)
    return fast
