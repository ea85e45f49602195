"""Which tokens have collapsed: ranking, neighbours, bins and comparison of planted classes, and what is refused."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from collapselab.analysis import tokens
from collapselab.cli import app
from collapselab.cli.results import safe
from collapselab.core.geometry import Geometry
from collapselab.core.metrics import class_rows
from collapselab.core.moments import ClassMoments
from collapselab.disk import user_cache
from collapselab.errors import ConfigError, DamagedError, RunError, UserError
from collapselab.records.measurement import Result
from collapselab.records.result_folder import find_results, load_results
from collapselab.records.tables import CLASSES

TEXTS = [" Lily", " Tom", " the", "ing", ".", "\x1b[31m[bold]x‮", None]


def facts(**change: Any) -> Any:
    splits = {"train": {"blocks": 1, "tokens": 9, "blocks_cut_off": 0}}
    return {
        "model": "m", "run": "m", "checkpoint": "-", "in_a_run": False, "model_hash": "h", "corpus": "corpora/c",
        "corpus_hash": "c", "options": {}, "splits": splits, "classes": 7, "context": None, "dtype": "float32",
        "device": "cpu", "batch": 1, "processes": 1, "versions": {}, "seconds": {"train": 1.0, "all": 1.0},
    } | change  # fmt: skip


def planted(spread: float = 1.0) -> ClassMoments:
    """Seven classes on a line; class c has a standard deviation of c · spread, the last a single sample."""
    moments, generator = ClassMoments.empty(7, 2), torch.Generator().manual_seed(0)
    for c in range(7):
        noise = spread * c * torch.randn(40 if c < 6 else 1, 2, generator=generator).double()
        moments.update(noise - noise.mean(0) + torch.tensor([10.0 * c * c, c]), torch.full((len(noise),), c))
    return moments


def result(moments: ClassMoments | None = None, texts: list[str | None] = TEXTS, **change: Any) -> Result:
    rows = class_rows(Geometry(moments or planted(), rows=True))
    size = len(rows.classes)
    named = {
        name: getattr(rows, name).numpy() for name in ("norm", "variance", "cdnv", "cosine", "nearest", "distance")
    }
    chunk = CLASSES.chunk(
        named
        | {
            name: [text] * size
            for name, text in (("run", "m"), ("checkpoint", "-"), ("split", "train"), ("layer", "last"))
        }
        | {name: [None] * size for name in ("duality_cos", "head_norm", "agreement", "accuracy", "loss")}
        | {"token": rows.classes.numpy(), "text": texts, "count": rows.counts.numpy(), "samples": [0] * size}
        | {"kind": ["word start"] * 3 + ["continuation", "punctuation", "other", "other"]}
    )
    return Result([], facts(**change), {"classes": [chunk]})


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    result().save(tmp_path / "r.json")
    return tmp_path / "r.json"


def run(*arguments: object) -> str:
    done = CliRunner().invoke(app, ["tokens", *map(str, arguments)], env={"COLUMNS": "160"})
    if isinstance(done.exception, UserError):
        raise done.exception
    assert done.exit_code == 0, done.output
    return done.output


def test_the_order_is_that_of_the_planted_spread() -> None:
    table = tokens.token_table(result())
    low, high = table.ends("variance", 2)
    assert low.index.tolist() == [0, 1]
    assert high.index.tolist() == [5, 4]
    assert table.left_out == 1, "the class with one sample has no variance for that reason alone"
    assert len(tokens.token_table(result(), min_count=1).frame) == 7
    assert sorted(index for end in table.ends("cdnv", 5) for index in end.index) == [0, 1, 2, 3, 4, 5]


def test_neighbours_from_means_and_from_the_table_agree_where_both_know_them() -> None:
    moments = planted()
    table = tokens.token_table(result(moments))
    whole = table.neighbours(1, top=5, moments=moments)
    assert whole.index.tolist() == [0, 2, 3, 4, 5]
    assert whole["same_kind"].tolist() == [True, True, False, False, False]
    alone = table.neighbours(1, top=5, moments=None)
    assert alone.index.tolist() == [0, 2], "its nearest, and the one whose nearest it is"
    for column in ("distance", "cosine"):
        assert alone[column].tolist() == pytest.approx(whole.loc[[0, 2], column].tolist(), rel=1e-9)
    means = moments.means
    centred = means - means.mean(0)
    expected = torch.cosine_similarity(centred[1], centred[4], dim=0)
    assert whole.at[4, "cosine"] == pytest.approx(float(expected), rel=1e-9)


def test_bins_are_ranges_of_counts() -> None:
    frame = tokens.token_table(result(), min_count=1).frame
    found = tokens.bins(frame, 2)
    assert found[["low", "high", "classes"]].to_numpy().tolist() == [[1, 1, 1], [40, 40, 6]]
    assert found["variance"][1] == pytest.approx(frame.loc[:5, "variance"].median())
    assert len(tokens.bins(frame.loc[:5], 3)) == 1, "one count, one range"


def test_what_moved_most_comes_first() -> None:
    before, after = tokens.token_table(result()), tokens.token_table(result(planted(2.0)))
    moved = before.compared(after, "variance")
    assert 0 not in moved.index, "0 to 0 has no ratio"
    assert moved["change"].tolist() == pytest.approx([1.3862943611] * 5, rel=1e-6)
    other = tokens.token_table(result(texts=["x", *TEXTS[1:]]))
    with pytest.raises(ConfigError, match="another vocabulary"):
        before.compared(other, "variance")


def test_hostile_texts_are_escaped(stored: Path) -> None:
    shown = run(stored)
    assert "' Lily'" in shown
    assert "\x1b[31m" not in shown
    assert "‮" not in shown
    assert "\\x1b[31m[bold]x" in shown, "no markup is read from it"
    assert safe("a\nb\t\x07‮é") == "'a\\nb\\t\\x07\\u202eé'"
    assert len(safe("x" * 500)) == 20


def test_every_view_is_shown_and_is_json(stored: Path, tmp_path: Path) -> None:
    assert "nearest to ' Lily'" in run(stored, "--like", " Lily")
    assert "nearest to ' Lily'" in run(stored, "--like", "Lily"), "the space may be left out"
    assert "nearest to ' Lily'" in run(stored, "--like", "#0")
    without_means = json.loads(run(stored, "--like", " Tom", "--json"))["notes"]
    planted().save(tmp_path / "r.safetensors")
    assert json.loads(run(stored, "--like", " Tom", "--json"))["notes"] == without_means[:-1]
    assert "medians by count" in run(stored, "--bins", 3)
    assert "' the'" not in run(stored, "--match", "^ [A-Z]")
    assert "median 0 over" in run(stored, "--compare", stored, "--sort", "norm")
    document = json.loads(run(stored, "--json", "--top", 2))
    assert [row["text"] for row in document["tables"]["smallest cdnv"]] != []
    assert document["tables"]["largest cdnv"][0]["count"] == 40


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--match", "("], "is not a regular expression"),
        (["--sort", "cdnw"], "Did you mean cdnv?"),
        (["--sort", "text"], "is not a number of a class"),
        (["--sort", "loss"], "no class of m has a loss"),
        (["--like", " Lilly"], "is not a token of m .* Near it are ' Lily'"),
        (["--layer", "9"], "no classes of layer '9'.*It has the layers last"),
        (["--bins", "0"], "1 to 100"),
    ],
)
def test_what_cannot_be_is_refused_with_what_to_do(stored: Path, arguments: list[str], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        run(stored, *arguments)


def test_a_measurement_without_the_table_says_how_to_make_it(tmp_path: Path) -> None:
    Result([], facts()).save(tmp_path / "r.json")
    with pytest.raises(ConfigError, match="collapselab measure m --corpus corpora/c --classes"):
        run(tmp_path / "r.json")
    Result([], facts() | {"in_a_run": True, "model": "m/1"}).save(tmp_path / "r.json")
    with pytest.raises(ConfigError, match="measure RUN --corpus corpora/c --classes, RUN being the folder of m."):
        run(tmp_path / "r.json")
    with pytest.raises(RunError, match="collapselab measure .*--classes"):
        run(tmp_path / "nothing")
    (tmp_path / "x.json").write_text("{")
    with pytest.raises(DamagedError, match="not a JSON document"):
        run(tmp_path / "x.json")
    (tmp_path / "x.csv").write_text("a")
    with pytest.raises(RunError):
        run(tmp_path / "x.csv")


def test_results_are_found_in_files_of_several_models_and_in_the_cache(tmp_path: Path) -> None:
    one, two = result(), result(run="n", model="n")
    both = {"results": [json.loads(one.to_json()), json.loads(two.to_json())], "failures": {}}
    (tmp_path / "both.json").write_text(json.dumps(both))
    assert [found.facts["run"] for found in load_results(tmp_path / "both.json")] == ["m", "n"]
    with pytest.raises(ConfigError, match="m, n"):
        run(tmp_path / "both.json")
    both["results"][1]["facts"]["run"] = "o"
    (tmp_path / "both.json").write_text(json.dumps(both))
    with pytest.raises(DamagedError, match=r"both\.json: damaged or edited"):
        load_results(tmp_path / "both.json")
    folder = tmp_path / "model"
    folder.mkdir()
    result(model=str(folder)).save(tmp_path / "finished" / "a.json")
    (found,) = find_results(tmp_path / "model" / ".." / "model", cache=tmp_path)
    assert len(found.result.frame("classes")) == 7


def test_neighbours_of_a_written_result_come_from_the_means_that_measuring_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    finished = user_cache("measure") / "finished"
    result(model=str(tmp_path)).save(tmp_path / "r.json")
    for name, tokens_asked in (("asked", {}), ("later", {"tokens": 5})):
        result(model=str(tmp_path), options=tokens_asked).save(finished / f"{name}.json")
    planted(9.0).save(finished / "later.safetensors")
    few = json.loads(run(tmp_path / "r.json", "--like", " Lily", "--json"))
    assert few["notes"], "means of other options are not its own"
    planted().save(finished / "asked.safetensors")
    many = json.loads(run(tmp_path / "r.json", "--like", " Lily", "--json"))
    ((rows,), (known,)) = many["tables"].values(), few["tables"].values()
    assert [row["text"] for row in rows] == [" Tom", " the", "ing", ".", TEXTS[5]]
    assert len(known) < len(rows)


def test_a_table_that_was_replaced_is_refused(stored: Path) -> None:
    result(planted(3.0)).save(stored.with_name("other.json"))
    stored.with_name("other.classes.parquet").rename(stored.with_name("r.classes.parquet"))
    with pytest.raises(DamagedError, match="classes.parquet"):
        run(stored)
