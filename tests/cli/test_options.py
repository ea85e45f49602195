"""Odd values of every option of `train`, `sample` and `suite`: one message and no traceback, whatever they are.

Everything is checked for real; only the training itself and the loading of a model are left out.
"""

import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from collapselab import cli
from collapselab.corpus.build import Recipe, build_corpus
from collapselab.corpus.sources import open_source
from collapselab.disk import disk_trouble
from collapselab.errors import RunError, UserError
from collapselab.training import generate
from collapselab.training import train as training
from collapselab.training.heads import HEADS
from collapselab.training.optimizers import OPTIMIZERS
from collapselab.training.settings import settings_from

NUMBERS = ["0", "-1", "nan", "inf", "²", "abc", "1e-320"]
WORDS = ["", "abc", "²", "\n", "[/b]", "é" * 300, "cuda:99", "cuda:x"]
CHECKPOINTS = ["log:1", "log:²", "log:9999999999", "0,nan", "-1"]
SETTINGS = [
    "width", "depth", "dropout", "context", "epochs", "steps", "batch", "batch-tokens", "lr", "weight-decay", "warmup",
    "clip", "coupling", "label-smoothing", "seed", "data-seed", "accumulation", "save-minutes", "log-every",
]  # fmt: skip


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("corpus") / "storyworld"
    build_corpus(open_source(["storyworld:stories=12,validation=4"]), folder, Recipe("bpe:300", block=32))
    return folder


def refused(*words: str | Path) -> str | None:
    """The message of a command that is refused, None where it went well; anything else fails the test."""
    start = time.monotonic()
    result = CliRunner().invoke(cli.app, [str(word) for word in words])
    assert time.monotonic() - start < 20
    error = result.exception
    if isinstance(error, SystemExit) and result.exit_code == 2:
        return result.output
    if isinstance(error, OSError) and error.filename is not None:
        return disk_trouble(error, reading=True)  # as `main` says it
    if error is not None and not isinstance(error, UserError):
        raise error
    return None if error is None else str(error)


@pytest.mark.slow
@pytest.mark.parametrize("option", SETTINGS)
def test_a_number_of_train(option: str, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training.LanguageTrainer, "train", lambda *_, **__: None)
    command = ["train", "--corpus", corpus, "--width", "8", "--depth", "1", "--device", "cpu"]
    answers = [refused(*command, "--out", tmp_path / f"{i}", f"--{option}={n}") for i, n in enumerate(NUMBERS)]
    for number, answer in zip(NUMBERS, answers, strict=True):
        if number in ("nan", "²", "abc", "-1"):
            assert answer, number


@pytest.mark.parametrize(
    ("option", "values"),
    [
        ("family", WORDS),
        ("head", WORDS),
        ("donor", WORDS),
        ("optimizer", WORDS),
        ("device", WORDS),
        ("report-to", WORDS),
        ("checkpoints", CHECKPOINTS),
        ("corpus", WORDS[1:]),
    ],
)
def test_a_word_of_train(
    option: str, values: list[str], corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training.LanguageTrainer, "train", lambda *_, **__: None)
    command = ["train", "--corpus", corpus, "--width", "8", "--depth", "1", "--device", "cpu"]
    for number, value in enumerate(values):
        assert refused(*command, "--out", tmp_path / f"{number}", f"--{option}={value}"), value


ODD_PATHS = ["", " ", "\n", "é" * 300, "x" * 5000, "/dev/null", "../../x", "[/b]"]


@pytest.mark.parametrize("head", ["frozen-donor", "frozen-donor-permuted"])
def test_a_donor_that_no_run_can_be(head: str, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training.LanguageTrainer, "train", lambda *_, **__: None)
    command = ["train", "--corpus", corpus, "--width", "8", "--depth", "1", "--no-tied", "--head", head]
    for number, path in enumerate([*ODD_PATHS, str(corpus)]):
        assert refused(*command, "--out", tmp_path / f"{number}", f"--donor={path}"), path


ODD_SETTINGS = ["intervene", "head", "donor", "optimizer", "coupling", "head_size", "tied"]


@pytest.mark.parametrize("setting", ODD_SETTINGS)
@pytest.mark.parametrize(
    "value",
    ["x" * 5000, ["within:+0.1"] * 3000, {"within": 0.1}, float("nan"), "\ud800"],
    ids=["long", "list", "mapping", "nan", "half"],
)
def test_an_odd_setting_of_a_recipe_is_refused(setting: str, value: Any, tmp_path: Path) -> None:
    source = {"source": "storyworld:stories=12,validation=4", "tokenizer": "bpe:300", "block": 32}
    base = {"width": 8, "depth": 1, "steps": 1, setting: value}
    (tmp_path / "r.yaml").write_text(yaml.safe_dump({"question": "?", "corpus": source, "base": base}))
    assert refused("suite", "plan", tmp_path / "r.yaml", "--no-timing", "--out", tmp_path / "suite")


@pytest.mark.parametrize("option", ["count", "tokens", "temperature", "top-k", "seed"])
def test_a_number_of_sample(option: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def reached(*_: Any) -> None:
        raise RunError("reached the model")

    monkeypatch.setattr(generate, "find_models", reached)
    for number in ("nan", "-1", "inf"):
        assert refused("sample", "m", f"--{option}={number}") not in (None, "reached the model"), number


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        *(("tokenizer", f"bpe:{size}") for size in ("²", "1", "", "-1")),
        ("validation_share", 10**90),
        ("validation_share", float("nan")),
    ],
)
def test_a_corpus_of_a_recipe(setting: str, value: Any, tmp_path: Path) -> None:
    spec = {"source": "storyworld:stories=12", "tokenizer": "bpe:300", "block": 32, setting: value}
    recipe = {"question": "Why?", "corpus": spec, "base": {"width": 8, "depth": 1}}
    (tmp_path / "odd.yaml").write_text(yaml.safe_dump(recipe))
    assert refused("suite", "plan", tmp_path / "odd.yaml", "--no-timing", "--out", tmp_path / "out")


@pytest.mark.parametrize("command", ["train", "suite run", "suite plan", "suite collect", "demo"])
def test_a_folder_under_a_file_is_one_message_and_exit_2(
    command: str, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("mine")
    (tmp_path / "odd.yaml").write_text(
        yaml.safe_dump({"question": "Why?", "corpus": str(corpus), "base": {"width": 8, "depth": 1}})
    )
    words: dict[str, list[Any]] = {
        "train": ["--corpus", corpus, "--width", 8, "--depth", 1, "--device", "cpu"],
        "suite plan": [tmp_path / "odd.yaml", "--no-timing"],
        "demo": ["--jobs", "1"],
    }
    given = words.get(command, [tmp_path / "odd.yaml"])
    for out in (tmp_path / "file", tmp_path / "file" / "x"):
        monkeypatch.setattr("sys.argv", ["collapselab", *command.split(), *map(str, given), "--out", str(out)])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        said = capsys.readouterr().err
        if command == "suite plan":
            continue  # it writes nothing
        assert ended.value.code == 2, said
        assert said.splitlines()[-1].startswith("collapselab: ")
        assert str(tmp_path / "file") in said
    assert (tmp_path / "file").read_text() == "mine"


@pytest.fixture(scope="module")
def donor(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("donor") / "run"
    training.train(settings_from({"width": 16, "depth": 1, "steps": 1, "batch": 2}), corpus, folder)
    return folder


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--intervene", "withn:+0.1"], "intervene: withn is not an intervention. Did you mean within?"),
        (["--intervene", "within:0.1"], "within:0.1 has no sign. Both exist: write within:+0.1 or within:-0.1."),
        (["--intervene", "simreg:-0.1"], "simreg:-0.1 has a -, but simreg acts in one direction. Write simreg:0.1."),
        (["--intervene", "within:+0.1", "--intervene", "within:-0.1"], "within is there twice"),
        (["--head", "frozen-code"], "head: frozen-code is not the input embeddings, but tied is true. Set tied"),
        (["--head", "sphere"], "head: sphere is not the input embeddings, but tied is true. Set tied to false."),
        (["--head", "frozen-cod", "--no-tied"], "did you mean frozen-code?"),
        (
            ["--head", "frozen-etf", "--no-tied"],
            "holds at most 9 tokens, got 300",
        ),
        (["--head", "frozen-donor", "--no-tied"], "got head frozen-donor with donor None"),
        (
            ["--head", "frozen-donor", "--no-tied", "--donor", "DONOR"],
            "300 tokens × 16, but this model needs 300 tokens × 8",
        ),
        (["--head", "frozen-code", "--no-tied", "--donor", "DONOR"], "got head frozen-code with donor"),
        (["--optimizer", "coupled-adm"], "did you mean coupled-adam?"),
        (
            ["--optimizer", "adam", "--coupling", "0.5"],
            "coupling: 0.5 is a share of the decay of adamw or coupled-adam",
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_an_intervention_that_cannot_be_is_refused_before_anything_is_written(
    words: list[str], message: str, corpus: Path, donor: Path, tmp_path: Path
) -> None:
    given = [str(donor) if word == "DONOR" else word for word in words]
    command = ["train", "--corpus", corpus, "--out", tmp_path / "run", "--width", "8", "--depth", "1", *given]
    answer = refused(*command)
    assert answer is not None
    assert message in answer
    assert not (tmp_path / "run").exists()


def test_the_help_of_train_lists_heads_and_optimisers() -> None:
    shown = CliRunner().invoke(cli.app, ["train", "--help"], env={"COLUMNS": "400"}).output
    names = [*HEADS, *OPTIMIZERS]
    assert len(names) > 8
    assert [name for name in names if name not in shown] == []
