"""Tokenizers: load one from a folder, a GGUF file or the hub, or train one on the training documents.

Only `load_tokenizer` loads tokenizers in this project. Code that comes with a tokenizer runs only if the user trusts
it, and nothing is asked on the terminal. Before a corpus is built with a tokenizer, it must encode one sentence: a
tokenizer with incomplete files can load without an error and encode nothing.
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
from collapselab.messages import logger, progress

log = logger(__name__)

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

MIN_BPE, MAX_BPE = 257, 1_000_000
"""Limits of a trained vocabulary; the smallest has one token per byte and the end of text."""
WORDS = "words"
"""Name of the tokenizer of a source that defines its own tokens."""
CHARACTERS = "characters"
"""Name of the tokenizer whose tokens are the characters of the training documents."""
LONG_DOCUMENT = 1 << 18
"""Characters of a document above which it is encoded in parts, since the library takes hundreds of bytes a token."""
MAX_WORD = 1024
LONG_WORD = re.compile(rf"\S{{{MAX_WORD + 1}}}|\s{{{MAX_WORD + 1}}}")
LONG_PARTS = re.compile(rf".{{1,{MAX_WORD}}}", re.DOTALL)
"""The training text of a document with a longer word is cut into parts of MAX_WORD characters."""
MAX_LONG_WORDS = 8_000_000
"""Bytes of such text that a tokenizer is trained on: the library holds every distinct word, in 70 times its size."""
UNKNOWN, MAX_CHARACTERS = "<unk>", 4096
TOKENIZER_FILES = ("*token*", "vocab*", "merges.txt", "*.model", "tekken.json")


class FastTokenizer(Protocol):
    """The interface of `transformers` tokenizers that is used here. Slow tokenizers have no `backend_tokenizer`."""

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
    """Return a fast tokenizer: `bpe:SIZE` and `characters` are trained on the documents, others are loaded.

    `words` are the tokens of a source that defines its own, for the tokenizer `words`.
    """
    if words is not None and name != WORDS:
        raise CorpusError(f"tokenizer {name}: this source defines its own tokens. Use --tokenizer {WORDS}.")
    if words is None and name == WORDS:
        raise CorpusError(f"tokenizer {name}: needs a source that defines its own tokens (markov). Use bpe:4096.")
    if words is not None:
        tokenizer = _word_tokenizer(words)
    elif name.startswith("bpe:"):
        tokenizer = _train_bpe(name, documents)
    elif name == CHARACTERS:
        tokenizer = _character_tokenizer(documents)
    else:
        tokenizer = _without_code(load_tokenizer(name, trust_code=trust_code), name)
    backend = tokenizer.backend_tokenizer
    backend.no_truncation()  # a tokenizer.json may set both, but documents must be encoded completely
    backend.no_padding()
    encoded = backend.encode(SENTENCE, add_special_tokens=False).ids
    if not encoded or len(encoded) > 4 * len(SENTENCE):
        raise CorpusError(
            f"{name}: the tokenizer encodes {SENTENCE!r} as {len(encoded)} tokens; its files are incomplete."
        )
    end_of_text(tokenizer, name)
    return tokenizer


def end_of_text(tokenizer: FastTokenizer, name: str = "") -> int:
    """Return the id of the end-of-text token, which every corpus needs."""
    if tokenizer.eos_token_id is None:
        raise CorpusError(f"{name}: the tokenizer has no end-of-text token.")
    return tokenizer.eos_token_id


def load_tokenizer(name: str | Path, *, trust_code: bool = False) -> "FastTokenizer":
    """Load the tokenizer of a folder, of a `.gguf` file, or of a name on the hub (`id` or `id@revision`)."""
    location = _location(str(name))
    from transformers import AutoTokenizer  # this import takes seconds, so names are checked first

    library: Any = AutoTokenizer
    try:
        with location.parsed_once():
            tokenizer: FastTokenizer = library.from_pretrained(trust_remote_code=trust_code, **location.arguments)
    except UserError:  # raised by a signal handler to stop the process
        raise
    except Exception as error:  # the library's Rust code raises plain Exception
        if "trust_remote_code" in str(error):
            raise CorpusError(
                f"{name}: the tokenizer comes with its own code, which runs only if you trust it. Read it, then use "
                "`collapselab corpus build` with --trust-code."
            ) from error
        cause = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
        raise _not_loaded(str(name), cause if len(cause) <= 200 else f"{cause[:200]} …") from error
    return tokenizer


def tokenizer_hash(tokenizer: "FastTokenizer") -> str:
    """Return a hash (16 hex digits) of how a tokenizer encodes text.

    It covers the vocabulary with its added tokens, the model's merges or scores, and the ids of `PROBES` with and
    without special tokens. Normaliser and pre-tokenizer enter only through the ids of the probes, because GGUF files
    and later versions of the library describe the same ones differently.
    """
    parts: list[object] = [sorted(tokenizer.get_vocab().items(), key=lambda item: (item[1], item[0]))]
    if getattr(tokenizer, "is_fast", False):
        model = json.loads(tokenizer.backend_tokenizer.to_str())["model"]
        scores = model["vocab"] if isinstance(model.get("vocab"), list) else None  # of a unigram model
        parts += [model["type"], model.get("merges"), scores]
    for special in (False, True):
        parts.append([tokenizer.encode(text, add_special_tokens=special) for text in PROBES])
    return hashlib.blake2b(json.dumps(parts).encode(), digest_size=8).hexdigest()


def _location(name: str) -> Pretrained:
    """Return where the library finds a tokenizer. If the hub does not answer, only its cache is searched."""
    path = Path(name)
    if path.is_dir():
        return _in_folder(path)
    if path.is_file():
        if path.suffix != ".gguf":
            raise CorpusError(f"{name}: a tokenizer must be a folder with a tokenizer.json, or a .gguf file.")
        return _in_gguf(path)
    identity_and_revision = None if path.suffix == ".gguf" else hub_id(name)
    if identity_and_revision is None:
        raise _not_loaded(name, "no such folder or file, and not a name on the hub")
    identity, revision = identity_and_revision
    if hub_answers():
        return Pretrained(identity, revision=revision, is_local=False)
    cached = (cached_folder(identity, revision, file=file) for file in ("tokenizer.json", "tokenizer_config.json"))
    folder = next(filter(None, cached), None)
    if folder is None:
        raise CorpusError(
            f"{name}: the tokenizer cannot be loaded (no such folder, not in the hub's cache, and the hub cannot be "
            f"reached). Download it on a machine with network access ({download_command(identity, revision)}) and "
            "name that folder, or train one: --tokenizer bpe:4096."
        )
    return _in_folder(folder)


def _in_folder(path: Path) -> Pretrained:
    if any(True for pattern in TOKENIZER_FILES for _ in path.glob(pattern)):
        return Pretrained(str(path))
    packed = sorted(path.glob("*.gguf"))
    if len(packed) == 1:
        return _in_gguf(packed[0])
    if packed:
        raise CorpusError(f"{path}: the folder has {len(packed)} .gguf files. Name one of them, such as {packed[0]}.")
    raise CorpusError(
        f"{path}: the folder contains no tokenizer (no tokenizer.json). Give the folder or the hub name of the model "
        "whose tokenizer you want."
    )


def _in_gguf(path: Path) -> Pretrained:
    place = in_gguf(path)
    if place is None:
        raise CorpusError(f"{path}: reading GGUF files needs the package gguf. Install collapselab[gguf].")
    return place


def _not_loaded(name: str, cause: str) -> CorpusError:
    return CorpusError(
        f"{name}: the tokenizer cannot be loaded ({cause}). Give a folder with a tokenizer.json, or train one: "
        "--tokenizer bpe:4096."
    )


def _without_code(tokenizer: "FastTokenizer", name: str) -> "FastTokenizer":
    """Convert a tokenizer to a class of the library, so that opening the corpus does not run third-party code."""
    if not getattr(tokenizer, "is_fast", False):
        raise CorpusError(f"{name}: {type(tokenizer).__name__} is not a fast tokenizer; a tokenizer.json is needed.")
    if type(tokenizer).__module__.startswith("transformers."):
        return tokenizer
    return _fast(tokenizer.backend_tokenizer, **tokenizer.special_tokens_map)


def bpe_size(name: str) -> int:
    """Return the vocabulary of `bpe:SIZE`; CorpusError if it is not one."""
    size = name.removeprefix("bpe:")
    if not re.fullmatch("[0-9]{1,7}", size) or not MIN_BPE <= int(size) <= MAX_BPE:
        raise CorpusError(f"{name}: write bpe:SIZE with a size from {MIN_BPE} to {MAX_BPE:,}.")
    return int(size)


def _train_bpe(name: str, documents: Documents) -> "FastTokenizer":
    size = bpe_size(name)
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=[END_OF_TEXT],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    stopped = threading.Event()
    cut = 0
    with progress(f"training {name}", total=documents.total, unit=documents.unit) as advance:

        def counted() -> Iterator[str]:
            nonlocal cut
            for document in documents.open():
                if stopped.is_set():
                    return
                advance(documents.size(document))
                # The library's time is quadratic in the length of a word, so a longer one is cut.
                for part in parts_of(document):
                    if not LONG_WORD.search(part):
                        yield part
                        continue
                    cut += len(part.encode())
                    if cut <= MAX_LONG_WORDS:
                        yield from LONG_PARTS.findall(part)

        # Signals are not handled while the library trains in the main thread, so it trains in another one.
        with ThreadPoolExecutor(max_workers=1) as pool:
            training = pool.submit(tokenizer.train_from_iterator, counted(), trainer)
            try:
                training.result()
            finally:
                stopped.set()
    if cut > MAX_LONG_WORDS:
        log.warning(
            "%s: of %.0f MB of text without spaces, only the first %.0f MB train the tokenizer.",
            name, cut / 1e6, MAX_LONG_WORDS / 1e6,
        )  # fmt: skip
    return _fast(tokenizer, **_END_OF_TEXT_SETTINGS)


def parts_of(document: str) -> Iterator[str]:
    """Cut a document before a single space between letters, or else anywhere, into parts of limited length."""
    start = 0
    while len(document) - start > LONG_DOCUMENT:
        end = start + LONG_DOCUMENT
        while end > start and not (
            document[end] == " " and document[end - 1].isalpha() and document[end + 1 : end + 2].isalpha()
        ):
            end -= 1
        end = end if end > start else start + LONG_DOCUMENT
        yield document[start:end]
        start = end
    yield document[start:]


def _word_tokenizer(words: Sequence[str]) -> "FastTokenizer":
    """Return a tokenizer in which word n is token n, and the end of text is the last token and any unknown word."""
    ids = {word: number for number, word in enumerate([*words, END_OF_TEXT])}
    tokenizer = Tokenizer(models.WordLevel(ids, unk_token=END_OF_TEXT))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return _fast(tokenizer, **_END_OF_TEXT_SETTINGS)


def _character_tokenizer(documents: Documents) -> "FastTokenizer":
    """Return a tokenizer with a token per character of the documents, in Unicode order.

    Only the MAX_CHARACTERS most frequent characters have a token; the others are unknown.
    """
    counts: Counter[str] = Counter()
    with progress("counting characters", total=documents.total, unit=documents.unit) as advance:
        for document in documents.open():
            advance(documents.size(document))
            counts.update(document)
    frequent = sorted(counts, key=lambda character: (-counts[character], character))[:MAX_CHARACTERS]
    ids = {token: number for number, token in enumerate([END_OF_TEXT, UNKNOWN, *sorted(frequent)])}
    tokenizer = Tokenizer(models.WordLevel(ids, unk_token=UNKNOWN))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), behavior="isolated")
    tokenizer.decoder = decoders.Fuse()
    # The unknown token is not declared to the library, which would encode a literal "<unk>" in a text as that token.
    return _fast(tokenizer, **_END_OF_TEXT_SETTINGS)


_END_OF_TEXT_SETTINGS = {"eos_token": END_OF_TEXT, "bos_token": END_OF_TEXT, "clean_up_tokenization_spaces": False}


def _fast(tokenizer: Tokenizer, **settings: object) -> "FastTokenizer":
    from transformers import PreTrainedTokenizerFast

    library: Any = PreTrainedTokenizerFast
    fast: FastTokenizer = library(tokenizer_object=tokenizer, **settings)
    return fast
