"""The words of the summary, in one golden file: all other tests assert codes and values.

python tests/analysis/test_summary_words.py    writes the file again, to be reviewed as a diff
"""

import sys
import tempfile
from pathlib import Path

import pytest

from collapselab.analysis.analyze import analyze
from collapselab.analysis.words import short_summary

GOLDEN = Path(__file__).parent / "data" / "summary.txt"
SUITES = ("seeds", "coupling", "scale")
MAX_SENTENCES = 10


def summary(name: str, folder: Path) -> list[str]:
    """The short summary of a packed suite of docs/results, a line a sentence."""
    from result_tables import unpack

    unpack(name, folder)
    sentences = short_summary(analyze(folder, permutations=499).sentences)
    return [f"{name}: {sentence.topic}: {sentence.text}" for sentence in sentences]


@pytest.mark.slow
def test_the_summary_has_the_words_of_the_golden_file(tmp_path: Path) -> None:
    made = {name: summary(name, tmp_path / name) for name in SUITES}
    assert max(map(len, made.values())) <= MAX_SENTENCES
    assert [line for lines in made.values() for line in lines] == GOLDEN.read_text("utf-8").splitlines()


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2] / "docs"))
    with tempfile.TemporaryDirectory() as temporary:
        lines = [line for name in SUITES for line in summary(name, Path(temporary) / name)]
    GOLDEN.write_text("\n".join(lines) + "\n", "utf-8")
