import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from collapselab.cli import app
from collapselab.errors import ConfigError, ModelError
from collapselab.training.generate import sample
from collapselab.training.settings import settings_from
from collapselab.training.train import train


@pytest.fixture(scope="module")
def trained(corpus_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "run"
    train(
        settings_from({"width": 32, "depth": 1, "batch": 8, "steps": 60, "lr": 1e-2}), corpus_folder, out, device="cpu"
    )
    return out


def test_a_text_begins_with_its_prompt_and_follows_from_the_seed(trained: Path) -> None:
    first, second = sample(str(trained), "Once upon a time", count=2, tokens=24)
    assert first.startswith("Once upon a time")
    assert first != second
    assert sample(str(trained), "Once upon a time", count=2, tokens=24) == [first, second]
    assert sample(str(trained), "Once upon a time", count=2, tokens=24, seed=1) != [first, second]


def test_at_temperature_zero_the_likeliest_token_is_taken(trained: Path) -> None:
    texts = {sample(str(trained), "Once", tokens=20, temperature=0, seed=seed)[0] for seed in range(3)}
    assert len(texts) == 1


def test_a_trained_model_writes_other_words_than_an_initial_one(trained: Path) -> None:
    after = sample(str(trained), "Once", tokens=30, temperature=0)
    before = sample(str(trained), "Once", tokens=30, temperature=0, checkpoint="0")
    assert after != before


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"checkpoint": "7"}, "checkpoints/7"),
        ({"count": 0}, "count must be ≥ 1, got 0"),
        ({"temperature": -1.0}, "temperature must be ≥ 0, got -1.0"),
        ({"prompt": "Once upon a time " * 40}, r"the prompt has \d+ tokens; no room is left in a text of 32"),
    ],
)
def test_what_cannot_be_sampled_is_refused(trained: Path, options: dict[str, object], message: str) -> None:
    values: dict[str, object] = {"prompt": "Once", **options}
    with pytest.raises((ConfigError, ModelError), match=message):
        sample(str(trained), **values)  # type: ignore[arg-type]


def test_a_model_without_a_tokenizer_is_refused(trained: Path, tmp_path: Path) -> None:
    for name in ("config.json", "model.safetensors"):
        (tmp_path / name).write_bytes((sorted((trained / "checkpoints").iterdir())[0] / name).read_bytes())
    with pytest.raises(ModelError, match="has no tokenizer beside its weights"):
        sample(str(tmp_path), "Once")


def test_the_command_trains_and_writes(corpus_folder: Path, tmp_path: Path) -> None:
    runner, out = CliRunner(), str(tmp_path / "run")
    command = ["train", "--corpus", str(corpus_folder), "--out", out, "--width", "16", "--depth", "1", "--steps", "3"]
    shown = runner.invoke(app, [*command, "--device", "cpu"], catch_exceptions=False)
    assert shown.exit_code == 0
    assert "val loss" in shown.stdout
    told = json.loads(runner.invoke(app, [*command, "--device", "cpu", "--json"], catch_exceptions=False).stdout)
    assert [entry["step"] for entry in told["checkpoints"]] == [0, 3]
    texts = runner.invoke(app, ["sample", out, "--prompt", "Tom", "--tokens", "9", "--json"], catch_exceptions=False)
    assert json.loads(texts.stdout)[0].startswith("Tom")


def test_every_setting_is_an_option_of_the_command() -> None:
    from collapselab.training.settings import Settings

    text = CliRunner().invoke(app, ["train", "--help"], env={"COLUMNS": "200"}).stdout
    for name in Settings.model_fields:
        assert f"--{name.replace('_', '-')}" in text
