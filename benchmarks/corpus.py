"""Building a corpus against the tokenizer's own batch call, and the memory it takes as the text grows."""

import os
import tempfile
import time
from pathlib import Path

from tokenizers import Tokenizer

from benchmarks.timing import Line, at_least, at_most, in_this_process, in_two_processes, peak_bytes, shown
from collapselab.corpus.build import Recipe, build_corpus
from collapselab.corpus.sources import open_source
from collapselab.corpus.storyworld import stories

TOKENIZER = "bpe:4096"


def corpora(quick: bool) -> list[Line]:
    """Tokenising files, with all that a corpus needs, beside `encode_batch` on the same texts in the same process."""
    count, few = 2000 if quick else 12000, 5000
    with tempfile.TemporaryDirectory() as folder:
        lines = _rate_lines(count, in_this_process(rates, folder, count, 2))
        if quick:  # peaks need processes of their own, and a text that fills the memory
            return lines
        sizes = [(folder, n) for n in (few, 10 * few)]
        small, large = in_two_processes("benchmarks.corpus", "peak_in_process", sizes)
    return [
        *lines,
        at_most(f"corpus of {10 * few:,} stories: peak memory", large["peak"] / 1e9, 1, "GB"),
        at_most("corpus: peak memory as the text grows tenfold", large["peak"] / small["peak"], 1.1),
    ]


def _rate_lines(count: int, speed: dict[str, float]) -> list[Line]:
    return [
        at_least(
            f"corpus of {count:,} stories: throughput of encode_batch",
            speed["limit"] / speed["ours"],
            0.8,
            ours=shown(speed["ours"]),
            limit=shown(speed["limit"]),
        ),
        at_least(
            "storyworld: × the tokenizer's throughput",
            speed["limit"] / speed["stories"],
            1,
            ours=shown(speed["stories"]),
            limit=shown(speed["limit"]),
        ),
    ]


def _written(folder: str, count: int) -> Path:
    path = Path(folder) / f"{count}.txt"
    if not path.exists():
        with path.open("w") as file:
            for story in stories(count):
                file.write(f"{story}\n<|endoftext|>\n")
    return path


def _tokenizer(folder: str) -> str:
    path = Path(folder) / "tokens"
    if not path.exists():
        build_corpus(
            open_source(["storyworld:stories=2000,validation=200"]), path, Recipe(tokenizer=TOKENIZER, block=128)
        )
    return str(path / "tokenizer")


def rates(folder: str, count: int, turns: int) -> dict[str, float]:
    """Best of some turns: the corpus, the library's batch call on the texts in memory, and making the stories up."""
    path, name = _written(folder, count), _tokenizer(folder)
    texts = list(open_source([str(path)]).train.open())
    library = Tokenizer.from_file(f"{name}/tokenizer.json")
    library.encode_batch(texts[:2000])
    seconds: dict[str, list[float]] = {"ours": [], "limit": [], "stories": []}
    for turn in range(turns):
        start = time.perf_counter()
        build_corpus(open_source([str(path)]), Path(folder) / f"turn{turn}", Recipe(tokenizer=name))
        seconds["ours"].append(time.perf_counter() - start)
        start = time.perf_counter()
        library.encode_batch(texts)
        seconds["limit"].append(time.perf_counter() - start)
        start = time.perf_counter()
        for _ in stories(count):
            pass
        seconds["stories"].append(time.perf_counter() - start)
    return {name: min(times) for name, times in seconds.items()}


def peak_in_process(folder: str, count: int) -> dict[str, float]:
    """Peak memory of building a corpus from a file of so many stories, the library's import included."""
    name = _tokenizer(folder)
    path = _written(folder, count)
    build_corpus(open_source([str(path)]), Path(folder) / f"peak{count}-{os.getpid()}", Recipe(tokenizer=name))
    return {"peak": peak_bytes()}


ALL = {"corpus": corpora}
