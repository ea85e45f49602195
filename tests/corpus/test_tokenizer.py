"""Loading tokenizers, and telling them apart."""

import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gguf
import pytest
from huggingface_hub import constants
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

from collapselab.corpus import tokenizer as tokenizer_module
from collapselab.corpus.sources import END_OF_TEXT, Documents, open_source
from collapselab.corpus.tokenizer import load_tokenizer, tokenizer_for, tokenizer_hash
from collapselab.errors import CorpusError, Interrupted, interruptible

SOURCE = Path(__file__).parents[2] / "src"
LOADER = "AutoTokenizer"


def byte_level(
    change: Callable[[Tokenizer], object] = lambda backend: None, *, size: int = 600, seed: int = 0
) -> PreTrainedTokenizerFast:
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    texts = [*open_source([f"storyworld:stories=60,seed={seed}"]).train.open(), "12 123 1234 café " * 50]
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(
        vocab_size=size, special_tokens=[END_OF_TEXT], initial_alphabet=alphabet, show_progress=False
    )
    backend.train_from_iterator(texts, trainer)
    change(backend)
    return PreTrainedTokenizerFast(tokenizer_object=backend, eos_token=END_OF_TEXT, bos_token=END_OF_TEXT)


def write_gguf(path: Path, tokenizer: Any) -> Path:
    """A GGUF file with a tokenizer and one small weight."""
    import numpy as np

    model = json.loads(tokenizer.backend_tokenizer.to_str())["model"]
    tokens = sorted(tokenizer.get_vocab(), key=tokenizer.get_vocab().get)
    special = {token.content for token in tokenizer.added_tokens_decoder.values()}
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(64)
    writer.add_embedding_length(8)
    writer.add_block_count(1)
    writer.add_feed_forward_length(8)
    writer.add_head_count(1)
    writer.add_head_count_kv(1)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(8)
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types([gguf.TokenType.CONTROL if token in special else gguf.TokenType.NORMAL for token in tokens])
    writer.add_token_merges([" ".join(pair) for pair in model["merges"]])
    writer.add_eos_token_id(tokenizer.eos_token_id)
    writer.add_bos_token_id(tokenizer.bos_token_id)
    writer.add_tensor("token_embd.weight", np.zeros((len(tokens), 8), dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.fixture(scope="module")
def plain() -> PreTrainedTokenizerFast:
    return byte_level()


# The hash ------------------------------------------------------------------------------------------------------------


def test_a_tokenizer_has_the_same_hash_wherever_it_is_loaded_from(plain: Any, tmp_path: Path) -> None:
    expected = tokenizer_hash(plain)
    assert len(expected) == 16
    assert int(expected, 16) >= 0
    plain.save_pretrained(tmp_path / "a")
    loaded = load_tokenizer(tmp_path / "a")
    loaded.save_pretrained(tmp_path / "b")
    packed = write_gguf(tmp_path / "tiny.gguf", plain)
    assert [tokenizer_hash(load_tokenizer(place)) for place in (tmp_path / "a", str(tmp_path / "b"), packed)] == [
        expected
    ] * 3
    assert tokenizer_hash(byte_level()) == expected


def begins(backend: Tokenizer) -> None:
    backend.post_processor = processors.TemplateProcessing(
        single=f"{END_OF_TEXT} $A", special_tokens=[(END_OF_TEXT, 0)]
    )


def swap_merges(backend: Tokenizer) -> None:
    state = json.loads(backend.to_str())["model"]
    merges = [tuple(pair) for pair in state["merges"]]
    merges[-1], merges[-2] = merges[-2], merges[-1]
    backend.model = models.BPE(vocab=state["vocab"], merges=merges)


def swap_ids(backend: Tokenizer) -> None:
    state = json.loads(backend.to_str())["model"]
    vocab = state["vocab"]
    vocab["a"], vocab["b"] = vocab["b"], vocab["a"]
    backend.model = models.BPE(vocab=vocab, merges=[tuple(pair) for pair in state["merges"]])


def setting(name: str, value: Any) -> Callable[[Tokenizer], None]:
    return lambda backend: setattr(backend, name, value)


OTHERS: dict[str, Callable[[], Any]] = {
    "another vocabulary": lambda: byte_level(seed=1),
    "a smaller vocabulary": lambda: byte_level(size=599),
    "an added token": lambda: byte_level(lambda backend: backend.add_tokens(["<more>"])),
    "two ids exchanged": lambda: byte_level(swap_ids),
    "two merges exchanged": lambda: byte_level(swap_merges),
    "a begin token": lambda: byte_level(begins),
    "a space before": lambda: byte_level(setting("pre_tokenizer", pre_tokenizers.ByteLevel(add_prefix_space=True))),
    "digits apart": lambda: byte_level(setting("pre_tokenizer", pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]))),
    "one letter apart": lambda: byte_level(setting("pre_tokenizer", pre_tokenizers.Sequence([pre_tokenizers.Split("t", "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False)]))),
    "small letters": lambda: byte_level(setting("normalizer", normalizers.Lowercase())),
    "composed letters": lambda: byte_level(setting("normalizer", normalizers.NFC())),
    "compatible letters": lambda: byte_level(setting("normalizer", normalizers.NFKC())),
    "no spaces around": lambda: byte_level(setting("normalizer", normalizers.Strip())),
}  # fmt: skip


@pytest.mark.parametrize("difference", OTHERS)
def test_a_tokenizer_that_makes_other_ids_has_another_hash(difference: str, plain: Any) -> None:
    assert tokenizer_hash(OTHERS[difference]()) != tokenizer_hash(plain)


def test_the_hash_of_fifty_thousand_tokens_takes_less_than_a_second() -> None:
    vocab = {f"token{n}": n for n in range(50_000)}
    backend = Tokenizer(models.WordLevel(vocab, unk_token="token0"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend)
    start = time.process_time()
    tokenizer_hash(tokenizer)
    assert time.process_time() - start < 1


# Loading -------------------------------------------------------------------------------------------------------------


def test_a_gguf_file_and_a_folder_with_one_give_its_tokenizer(plain: Any, tmp_path: Path) -> None:
    packed = write_gguf(tmp_path / "tiny.gguf", plain)
    for place in (packed, tmp_path):
        tokenizer = tokenizer_for(str(place), open_source(["storyworld"]).train)
        text = "Once upon a time, there were 1234 cats."
        assert tokenizer.encode(text) == plain.encode(text)
        assert tokenizer.eos_token == END_OF_TEXT
    write_gguf(tmp_path / "other.gguf", plain)
    with pytest.raises(CorpusError, match=r"2 \.gguf files.*other\.gguf"):
        load_tokenizer(tmp_path)


def damaged_gguf(folder: Path) -> Path:
    (folder / "bad.gguf").write_bytes(b"GGUF")
    return folder / "bad.gguf"


def damaged_json(folder: Path) -> Path:
    byte_level().save_pretrained(folder)
    (folder / "tokenizer.json").write_text('{"model": 3}')
    return folder


def other_file(folder: Path) -> Path:
    (folder / "tokenizer.json").write_text("{}")
    return folder / "tokenizer.json"


REFUSED: dict[str, tuple[Callable[[Path], Path | str], str]] = {
    "4 bytes of a GGUF": (damaged_gguf, r"bad\.gguf: the tokenizer cannot be loaded"),
    "a damaged tokenizer.json": (damaged_json, "the tokenizer cannot be loaded"),
    "a file": (other_file, r"tokenizer\.json: .*folder"),
    "no such GGUF": (lambda folder: folder / "x.gguf", r"x\.gguf: the tokenizer cannot be loaded \(no such folder or file"),
    "no name": (lambda _: "a/b/c", r"a/b/c: the tokenizer cannot be loaded \(no such folder or file, and not a name"),
    "an empty folder": (lambda folder: folder, r"no tokenizer\.json"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_not_a_tokenizer_is_named(case: str, tmp_path: Path) -> None:
    make, message = REFUSED[case]
    with pytest.raises(CorpusError, match=message):
        load_tokenizer(make(tmp_path))


@pytest.mark.parametrize("size", ["²", "٣٠٠٠", "-5", "4e3", "256", "1000001", "99999999999999999999", ""])
def test_a_size_that_is_not_a_number_or_cannot_be_is_refused(size: str) -> None:
    with pytest.raises(CorpusError, match="bpe:SIZE .* 257"):
        tokenizer_for(f"bpe:{size}", open_source(["storyworld"]).train)


def test_characters_are_tokens_and_come_back_as_they_were() -> None:
    text = "Line one.\n\n\tTabs,  two spaces, e\u0301 and é and 日本\r\n"
    tokenizer = tokenizer_for("characters", Documents(lambda: iter([text, "xyz"]), total=2, unit="documents"))
    ids = tokenizer.encode(text, add_special_tokens=False)
    assert len(ids) == len(text)
    assert len(tokenizer) == len(set(text + "xyz")) + 2
    assert tokenizer.decode(ids) == text
    unseen, end = (
        tokenizer.encode("Ω", add_special_tokens=False),
        tokenizer.encode(END_OF_TEXT, add_special_tokens=False),
    )
    assert tokenizer.decode(unseen) == "<unk>"
    assert end == [tokenizer.eos_token_id]


def test_the_word_for_the_unknown_is_characters_like_any_other(tmp_path: Path) -> None:
    text = "if word == '<unk>': pass"
    tokenizer = tokenizer_for("characters", Documents(lambda: iter([text]), total=1, unit="documents"))
    tokenizer.save_pretrained(tmp_path / "tokens")
    for one in (tokenizer, load_tokenizer(str(tmp_path / "tokens"))):
        ids = one.encode(text, add_special_tokens=False)
        assert len(ids) == len(text)
        assert one.decode(ids) == text


def test_of_very_many_characters_the_most_frequent_are_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokenizer_module, "MAX_CHARACTERS", 3)
    tokenizer = tokenizer_for("characters", Documents(lambda: iter(["aaabbcO", "dcn"]), total=2, unit="documents"))
    assert set(tokenizer.get_vocab()) == {END_OF_TEXT, "<unk>", "a", "b", "c"}


def test_a_hub_that_cannot_be_reached_is_said_soon_and_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokenizer_module, "hub_answers", lambda: False)
    start = time.monotonic()
    with pytest.raises(
        CorpusError, match=r"owner/model@v1: .* cannot be reached\).*hf download owner/model --revision v1 --local-dir"
    ):
        load_tokenizer("owner/model@v1")
    assert time.monotonic() - start < 2


def test_a_tokenizer_in_the_cache_needs_no_hub(plain: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commit = "0123456789abcdef0123456789abcdef01234567"
    cached = tmp_path / "models--owner--model"
    plain.save_pretrained(cached / "snapshots" / commit)
    (cached / "refs").mkdir()
    (cached / "refs" / "v1").write_text(commit)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(tokenizer_module, "hub_answers", lambda: False)
    assert tokenizer_hash(load_tokenizer("owner/model@v1")) == tokenizer_hash(plain)
    with pytest.raises(CorpusError, match=r"owner/model@v2: .* not in the hub's cache.*--revision v2"):
        load_tokenizer("owner/model@v2")


def test_a_tokenizer_that_truncates_does_not_shorten_documents(plain: Any, tmp_path: Path) -> None:
    plain.save_pretrained(tmp_path)
    state = json.loads((tmp_path / "tokenizer.json").read_text())
    state["truncation"] = {"direction": "Right", "max_length": 40, "strategy": "LongestFirst", "stride": 0}
    state["padding"] = {"strategy": {"Fixed": 64}, "direction": "Right", "pad_to_multiple_of": None, "pad_id": 0, "pad_type_id": 0, "pad_token": END_OF_TEXT}  # fmt: skip
    (tmp_path / "tokenizer.json").write_text(json.dumps(state))
    tokenizer = tokenizer_for(str(tmp_path), open_source(["storyworld"]).train)
    text = "Once upon a time. " * 40
    assert tokenizer.backend_tokenizer.encode(text, add_special_tokens=False).ids == plain.encode(text)
    assert tokenizer_hash(load_tokenizer(tmp_path)) == tokenizer_hash(plain)


def test_a_signal_stops_the_training_of_a_tokenizer() -> None:
    read = []

    def documents() -> Iterator[str]:
        for number in range(300_000):
            if number == 20_000:
                os.kill(os.getpid(), signal.SIGTERM)
            read[:] = [number]
            yield f"word number {number}"

    with pytest.raises(Interrupted), interruptible():
        tokenizer_for("bpe:300", Documents(documents, None, "documents"))
    assert read[0] < 200_000


def test_a_document_that_cannot_be_read_ends_the_training_with_its_message(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"text\n<|endoftext|>\n" * 2000 + b"\xff")
    with pytest.raises(CorpusError, match=r"a\.txt: byte 0xff at position .* is not UTF-8"):
        tokenizer_for("bpe:300", open_source([str(tmp_path / "a.txt")]).train)


# Code that comes with a tokenizer --------------------------------------------------------------------------------------


PAYLOAD = """
from pathlib import Path
from transformers import PreTrainedTokenizerFast
Path({mark!r}).touch()
class Mine(PreTrainedTokenizerFast):
    pass
"""


@pytest.fixture
def hostile(plain: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """A folder whose tokenizer wants to run code of its own, and the file that this code makes."""
    folder, mark = tmp_path / "hostile", tmp_path / "it-ran"
    plain.save_pretrained(folder)
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    settings |= {"tokenizer_class": "Mine", "auto_map": {LOADER: [None, "mine.Mine"]}}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    (folder / "mine.py").write_text(PAYLOAD.format(mark=str(mark)))
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(sys, "path", sys.path[:])
    return folder, mark


def test_code_of_a_tokenizer_does_not_run_and_nobody_is_asked(
    hostile: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, mark = hostile
    answers = io.StringIO("yes\n" * 9)
    monkeypatch.setattr(sys, "stdin", answers)
    with pytest.raises(CorpusError, match=r"hostile: the tokenizer comes with its own code.*--trust-code"):
        load_tokenizer(folder)
    assert not mark.exists()
    assert answers.tell() == 0


@pytest.mark.slow
def test_no_command_runs_the_code_of_a_tokenizer(hostile: tuple[Path, Path], tmp_path: Path) -> None:
    folder, mark = hostile
    command = [sys.executable, "-m", "collapselab", "corpus", "build", "storyworld:stories=20", "--tokenizer", str(folder), "--out", str(tmp_path / "c")]  # fmt: skip
    done = subprocess.run(command, input="yes\n" * 99, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "hostile: the tokenizer comes with its own code" in done.stderr
    assert "Traceback" not in done.stderr
    assert not mark.exists()


def test_trusted_code_runs_and_the_corpus_opens_without_it(
    hostile: tuple[Path, Path], plain: Any, tmp_path: Path
) -> None:
    folder, mark = hostile
    tokenizer = tokenizer_for(str(folder), open_source(["storyworld"]).train, trust_code=True)
    assert mark.exists()
    tokenizer.save_pretrained(tmp_path / "saved")
    assert tokenizer.eos_token == END_OF_TEXT
    assert "auto_map" not in json.loads((tmp_path / "saved" / "tokenizer_config.json").read_text())
    assert tokenizer_hash(load_tokenizer(tmp_path / "saved")) == tokenizer_hash(plain)


def test_one_place_loads_tokenizers() -> None:
    files = [path for path in SOURCE.rglob("*.py") if LOADER in path.read_text()]
    assert [path.name for path in files] == ["tokenizer.py"]
