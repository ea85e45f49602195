"""An analysis as a notebook shows it: sentences, and one line."""

from dataclasses import replace

import pytest

from analysis.planted import row_of, run_of
from collapselab.analysis.analyze import Analysis, analyze
from collapselab.analysis.words import Sentence
from collapselab.records.tables import RESULTS, RUNS


@pytest.fixture(scope="module")
def analysis(tmp_path_factory: pytest.TempPathFactory) -> Analysis:
    folder = tmp_path_factory.mktemp("suite")
    runs = [run_of(f"s{seed}", seed=seed, val_loss=2 + seed**2 / 100) for seed in range(8)]
    RUNS.write(folder / "runs.csv", runs)
    RESULTS.write(folder / "results.csv", [row_of(run, "agreement", 0.5 - run["seed"] / 50) for run in runs])
    return analyze(folder, permutations=99)


def test_sentences_are_escaped_and_one_line_is_short(analysis: Analysis) -> None:
    shown = replace(analysis, sentences=[Sentence("<i>", "relate", "a < b & c")])._repr_html_()
    assert "<i><i>" not in shown
    assert "a &lt; b &amp; c" in shown
    assert analysis.sentences[0].text in analysis._repr_html_()
    assert repr(analysis).endswith(f": val_loss, 8 models; {len(analysis.tables)} tables)")
