"""Scores of the user's own: read as they are, joined by name, and what matches nothing is listed."""

import json
from pathlib import Path
from typing import Any

import pytest

from collapselab.errors import ConfigError, RunError
from collapselab.records.outcomes import direction
from collapselab.records.scores import join_scores, read_scores, score_outcome, scores_bytes, with_scores


def runs(*names: str) -> list[Any]:
    return [{"run": name, "checkpoint": str(epoch), "epoch": float(epoch)} for name in names for epoch in (0, 1, 2)]


def harness(path: Path, model: Any, **more: Any) -> Path:
    results = {
        "arc_easy": {"alias": "arc_easy", "acc,none": 0.31, "acc_stderr,none": 0.01, "acc_norm,none": 0.29},
        "wikitext": {"word_perplexity,none": 41.5, "word_perplexity_stderr,none": "N/A", "bits_per_byte,none": 1.2},
        "gsm8k": {"exact_match,strict-match": 0.1, "exact_match,flexible-extract": 0.2, "sample_len": 100},
    }
    document = {"results": results, "config": {"model": "hf", "model_args": model}, **more}
    path.write_text(json.dumps(document))
    return path


def test_a_table_is_joined_by_run_and_the_rest_is_listed(tmp_path: Path) -> None:
    (tmp_path / "s.csv").write_text(
        "run,checkpoint,blimp,word_perplexity\na,,0.7,31\nb,1,0.6,\nzzz,,0.5,30\na@1,,0.1,\n"
    )
    joined = join_scores(read_scores(tmp_path / "s.csv"), runs("a", "b", "c"))
    assert joined.values == {
        ("a", "2"): {"score:blimp": 0.7, "cost:word_perplexity": 31.0},
        ("a", "1"): {"score:blimp": 0.1},
        ("b", "1"): {"score:blimp": 0.6},
    }
    assert (joined.unmatched, joined.without) == (["zzz"], ["c"])
    table = with_scores(runs("a", "b", "c"), scores_bytes(joined))
    assert [row.get("score:blimp") for row in table] == [None, 0.1, 0.7, None, 0.6, None, None, None, None]
    assert direction("score:blimp") == 1
    assert direction("cost:word_perplexity") == -1


@pytest.mark.parametrize(
    "model", ["pretrained=suites/x/a/checkpoints/1,dtype=float32", {"pretrained": "/data/suites/x/a/checkpoints/1"}]
)
def test_result_files_of_the_harness_are_read_as_they_are(model: Any, tmp_path: Path) -> None:
    joined = join_scores(read_scores(harness(tmp_path / "r.json", model)), runs("a", "b"))
    assert joined.values == {
        ("a", "1"): {
            "score:arc_easy/acc": 0.31,
            "score:arc_easy/acc_norm": 0.29,
            "cost:wikitext/word_perplexity": 41.5,
            "cost:wikitext/bits_per_byte": 1.2,
            "score:gsm8k/exact_match/strict-match": 0.1,
            "score:gsm8k/exact_match/flexible-extract": 0.2,
        }
    }


def test_what_the_harness_says_of_directions_counts(tmp_path: Path) -> None:
    path = harness(tmp_path / "r.json", "pretrained=a", higher_is_better={"arc_easy": {"acc": False}})
    names = {score.outcome for score in read_scores(path)}
    assert "cost:arc_easy/acc" in names
    assert "score:arc_easy/acc_norm" in names


def test_a_folder_of_result_files_is_read_whole(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        harness(tmp_path / name / "results_2026.json", f"pretrained={name}")
    joined = join_scores(read_scores(tmp_path), runs("a", "b"))
    assert set(joined.values) == {("a", "2"), ("b", "2")}


BAD = {
    "no key": ("s.csv", "name,blimp\na,1\n", "name"),
    "no score": ("s.csv", "run,checkpoint\na,1\n", "checkpoint"),
    "no number": ("s.csv", "run,blimp\na,high\n", "line 2: blimp is 'high'"),
    "nan": ("s.csv", "run,blimp\na,nan\n", "line 2: blimp is 'nan'"),
    "two values": ("s.csv", "run,blimp\na,1\na@2,2\n", "score:blimp of a@2"),
    "two rows": ("s.csv", "run,blimp\na,1\na,2\n", "two rows for a"),
    "nothing matches": ("s.csv", "run,blimp\nq,1\n", "'q'"),
    "other json": ("s.json", '{"a": 1}', "s.json"),
    "a list": ("s.json", "[1, 2]", "s.json"),
    "no model": ("s.json", '{"results": {}}', "model_name"),
    "half a file": ("s.json", '{"results": {', "s.json"),
    "a name with a comma": ("s.csv", 'run,"a,b"\na,1\n', "'a,b'"),
}
"""The file, its contents, and what the error must name."""


@pytest.mark.parametrize("fault", BAD)
def test_bad_scores_are_refused_with_what_is_wrong(fault: str, tmp_path: Path) -> None:
    file, content, named = BAD[fault]
    (tmp_path / file).write_text(content)
    with pytest.raises((ConfigError, RunError)) as error:
        join_scores(read_scores(tmp_path / file), runs("a"))
    assert named in str(error.value)


def test_files_that_are_not_there_are_refused(tmp_path: Path) -> None:
    for missing in (tmp_path / "none.csv", tmp_path):
        with pytest.raises(ConfigError):
            read_scores(missing)


def test_names_say_their_direction() -> None:
    assert score_outcome("val ppl") == "cost:val_ppl"
    assert score_outcome("cost:mine") == "cost:mine"
    assert score_outcome("accuracy") == "score:accuracy"


@pytest.mark.parametrize("odd", [{"higher_is_better": {"arc_easy": True}}, {"higher_is_better": {"arc_easy": [1]}}])
def test_a_result_file_with_directions_of_another_form_is_read_without_them(odd: Any, tmp_path: Path) -> None:
    scores = read_scores(harness(tmp_path / "r.json", {"pretrained": "a"}, **odd))
    assert "score:arc_easy/acc" in {score.outcome for score in scores}


def test_numbers_beyond_floats_are_no_scores(tmp_path: Path) -> None:
    path = harness(tmp_path / "r.json", {"pretrained": "a"})
    path.write_text(path.read_text().replace("0.31", "1" + "0" * 400).replace("0.29", "NaN"))
    outcomes = {score.outcome for score in read_scores(path)}
    assert not {"score:arc_easy/acc", "score:arc_easy/acc_norm"} & outcomes
    assert outcomes


@pytest.mark.parametrize("label", ["score:<script>", "cost:a,b", "score:", "score:a\x1b[31m", "cost:\u202eabc"])
def test_a_name_that_says_its_direction_is_checked_too(label: str) -> None:
    with pytest.raises(ConfigError):
        score_outcome(label)
