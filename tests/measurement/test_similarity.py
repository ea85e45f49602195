"""`similarity` of measurements: what is found by name, and what is refused."""

import json
import os
import re
import tarfile
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from collapselab.cli import app
from collapselab.core.geometry import class_mean_similarity
from collapselab.core.moments import ClassMoments
from collapselab.disk import user_cache
from collapselab.errors import ConfigError, DamagedError, RunError
from collapselab.measurement import similarity as module
from collapselab.measurement.sample import ClassNumbers
from collapselab.measurement.similarity import similarity
from collapselab.models.build import build_config, build_model
from collapselab.records.measurement import Result
from collapselab.records.result_folder import load_moments
from collapselab.records.run import kept_layers, layer_moments


def saved(path: Path, *, seed: int, classes: int = 9) -> ClassMoments:
    moments = ClassMoments.empty(classes, 4)
    features = torch.randn(90, 4, generator=torch.Generator().manual_seed(seed))
    moments.update(features, torch.arange(90) % classes)
    moments.save(path)
    return moments


def test_every_two_files_are_compared_and_the_document_says_the_same(tmp_path: Path) -> None:
    files = [tmp_path / f"{seed}.safetensors" for seed in range(3)]
    moments = [saved(file, seed=seed) for seed, file in enumerate(files)]
    found = similarity(files)
    assert set(found.pairs) == {(0, 1), (0, 2), (1, 2)}
    for (i, j), one in found.pairs.items():
        assert one == class_mean_similarity(moments[i], moments[j])
        assert found.at(j, i) is one
    document = json.loads(found.to_json())
    assert [row["cka"] for row in document["pairs"]] == [one.value for one in found.pairs.values()]


def test_other_vocabularies_and_tokenizers_are_refused_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two, three = (tmp_path / f"{name}.safetensors" for name in ("one", "two", "three"))
    saved(one, seed=0)
    saved(two, seed=1, classes=10)
    saved(three, seed=2)
    with pytest.raises(ConfigError, match=r"one.safetensors has a vocabulary of 9 tokens, .*two.safetensors one of 10"):
        similarity([one, two])
    hashes = {str(one): "aa", str(three): "bb"}
    monkeypatch.setattr(module, "_sources", lambda name: [module._Source(name, Path(name), hashes[name], {})])
    with pytest.raises(ConfigError, match=r"one.safetensors was measured with the tokenizer aa, .* with bb"):
        similarity([str(one), str(three)])


def test_what_is_not_a_measurement_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "m.safetensors"
    saved(file, seed=0)
    with pytest.raises(ConfigError, match="1 measurement; at least 2 are needed"):
        similarity([file])
    with pytest.raises(RunError, match="nowhere: no such file or folder, nor a model that was measured"):
        similarity([file, "nowhere"])
    with pytest.raises(ConfigError, match="min_count is 0"):
        similarity([file, file], min_count=0)
    (tmp_path / "text.safetensors").write_text("no tensors")
    with pytest.raises(DamagedError, match="text.safetensors"):
        similarity([file, tmp_path / "text.safetensors"])


def test_a_run_is_all_its_measured_checkpoints_also_of_an_earlier_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with tarfile.open(Path(__file__).parents[1] / "fixtures" / "version-0.1.0.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    monkeypatch.chdir(tmp_path)
    run, other = sorted(path.parent for path in (tmp_path / "suite").glob("*/run.json"))
    found = similarity([run, other / "checkpoints" / "0"])
    assert found.names == [f"{run.name}/0", f"{run.name}/0.184615", str(other / "checkpoints" / "0")]
    values = [found.at(*pair).value or 0 for pair in ((0, 1), (0, 2), (1, 2))]
    assert values[0] > 0.7 > 0.6 > max(values[1:]), "twelve steps of one seed beside another seed"
    for file in (run / "measure").glob("*.safetensors"):
        file.unlink()
    with pytest.raises(RunError, match="no checkpoint of this run has been measured"):
        similarity([run, other])
    with pytest.raises(RunError, match="0: has not been measured"):
        similarity([run / "checkpoints" / "0", other])


def measured_facts(**change: str) -> Any:
    return {
        "checkpoint": "-", "in_a_run": False, "corpus": "corpora/c", "corpus_hash": "c", "options": {},
        "splits": {"train": {"blocks": 1, "tokens": 9, "blocks_cut_off": 0}}, "classes": 9, "context": None,
        "dtype": "float32", "device": "cpu", "batch": 1, "processes": 1, "versions": {},
        "seconds": {"train": 1.0, "all": 1.0}, "tokenizer": {"model": "aa", "corpus": "aa", "same": True},
    } | change  # fmt: skip


def test_models_and_folders_of_results_are_compared_by_the_means_that_were_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    finished = user_cache("measure") / "finished"
    finished.mkdir(parents=True)
    for seed, name in enumerate(("model", "sweep/one.0123456789abcdef", "sweep/two.0123456789abcdef")):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        facts = measured_facts(model=str(tmp_path / name), run=name, model_hash=name)
        file = finished / "0.json" if name == "model" else tmp_path / f"{name}.json"
        Result([], facts).save(file)
        if name == "model":
            Result([], facts).save(tmp_path / "r.json")
        saved(file.with_suffix(".safetensors"), seed=seed)
    found = similarity([tmp_path / "model", tmp_path / "sweep"])
    assert found.names == [
        str(tmp_path / name) for name in ("model", "sweep/one.0123456789abcdef", "sweep/two.0123456789abcdef")
    ]
    alike = similarity([tmp_path / "model", tmp_path / "r.json"]).at(0, 1).value
    assert alike == pytest.approx(1.0), "a file that measure wrote has the means of its model"
    assert max(found.at(0, 1).value or 1, found.at(1, 2).value or 1) < 0.9
    (tmp_path / "sweep" / "two.0123456789abcdef.safetensors").unlink()
    with pytest.raises(RunError, match="two.*its class means were not kept. .*--classes. keeps them"):
        similarity([tmp_path / "sweep"])


def test_many_measurements_are_one_table(tmp_path: Path) -> None:
    files = [tmp_path / f"{seed}.safetensors" for seed in range(12)]
    for seed, file in enumerate(files):
        saved(file, seed=seed)
    done = CliRunner().invoke(app, ["similarity", *map(str, files)], env={"COLUMNS": "200"})
    assert done.exit_code == 0, done.output
    shown = [float(number) for number in re.findall(r"(?<= )[01]\.\d{3}(?= )", done.output)]
    assert len(shown) == 12 * 12
    assert shown.count(1.0) >= 12


def test_layers_that_were_kept_are_compared_with_each_other(
    tmp_path: Path, corpus: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    config = build_config("gpt-neo", width=8, depth=2, vocabulary=corpus.vocabulary, positions=corpus.block)
    build_model(config, seed=0).save_pretrained(tmp_path / "model")

    words = ["measure", str(tmp_path / "model"), "--corpus", str(corpus.path), "--tokens", "2000", "--layers", "all"]
    result = CliRunner().invoke(app, [*words, "--classes", "--out", f"{tmp_path}/results/"])
    assert result.exit_code == 0, result.output
    found = similarity([tmp_path / "results"], layers="all")
    assert [name.rsplit("model", 1)[1] for name in found.names] == [" layer 1", " layer 2", " last"]
    (last,) = (file for file in (tmp_path / "results").glob("*.safetensors") if ".layer-" not in file.name)
    first = layer_moments(last, "1")
    expected = class_mean_similarity(ClassMoments.load(first), ClassMoments.load(last))
    assert found.at(0, 2) == expected
    assert 0 < (expected.value or 0) < 1
    assert (found.at(1, 2).value or 0) > (expected.value or 0), "the last block is nearer to its norm than the first"

    os.rename(first, tmp_path / "swapped")
    os.rename(layer_moments(last, "2"), first)
    os.rename(tmp_path / "swapped", layer_moments(last, "2"))
    with pytest.raises(DamagedError, match="layer-1.safetensors: class moments with layer '2', not '1'"):
        similarity([tmp_path / "results"], layers="all")
    for file in kept_layers(last).values():
        file.unlink()
    with pytest.raises(RunError, match="class means of its layers were not kept. .*--layers all --classes"):
        similarity([tmp_path / "results"], layers="all")
    with pytest.raises(ConfigError, match="layers is 'some'; it is last or all"):
        similarity([tmp_path / "results"], layers="some")  # type: ignore[arg-type]


def test_layers_of_an_earlier_measurement_are_not_taken_for_those_of_a_later_one(tmp_path: Path) -> None:
    last = tmp_path / "run.0123456789abcdef.safetensors"
    for layer, seed in (("1", 0), ("10", 1), ("2", 2)):
        saved(layer_moments(last, layer), seed=seed)
    saved(last, seed=3)
    (tmp_path / "run.0123456789abcdef.layer-x.safetensors").write_text("")
    assert list(kept_layers(last)) == ["1", "2", "10"]
    Result([], measured_facts(model="run", run="run", model_hash="a")).save(last.with_suffix(".json"))
    with pytest.raises(RunError, match="class means of its layers were not kept"):  # its options ask for the last alone
        similarity([tmp_path], layers="all")


def test_moments_of_another_checkpoint_corpus_or_option_are_refused(tmp_path: Path) -> None:
    expected: dict[str, object] = {
        "run": "a",
        "checkpoint": "0",
        "model_hash": "1",
        "corpus_hash": "2",
        "options": {"bins": 3},
        "layer": "last",
    }
    moments, numbers = ClassMoments.empty(4, 2), ClassNumbers.every(4)
    for name, value in {**expected, "options": {"bins": 4}}.items():
        numbers.save(moments, tmp_path / "m.safetensors", {**expected, name: "x" if name != "options" else value})
        with pytest.raises(DamagedError, match=f"class moments with {name}"):
            load_moments(tmp_path / "m.safetensors", expected)
    numbers.save(moments, tmp_path / "m.safetensors", expected)
    assert load_moments(tmp_path / "m.safetensors", expected).classes == 4
    moments.save(tmp_path / "m.safetensors")  # as earlier versions did, which say nothing
    assert load_moments(tmp_path / "m.safetensors", expected).classes == 4
