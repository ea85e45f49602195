"""Calls that nobody would write: every command and option with odd values, odd names, odd files and odd variables.

Each must end with 0, 1 or 2 and, where it refuses, with one short message; never with a traceback, and never without an
end. The calls are drawn from a seed, from the options that the commands have, so that a new option takes part by itself.
It runs by hand, with COLLAPSELAB_RELIABILITY set; other calls with another FUZZ_SEED, more of them with FUZZ_CALLS and
FUZZ_RECIPES.
"""

import contextlib
import io
import json
import os
import random
import resource
import signal
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main
import yaml

from checkpoints import save_checkpoint
from collapselab import cli
from collapselab.corpus.build import Recipe, build_corpus
from collapselab.corpus.sources import open_source
from collapselab.measurement.measure import measure
from collapselab.models.build import build_config, build_model
from collapselab.suite.recipe import load_suite
from report.suites import write_suite

LONG = bool(os.environ.get("COLLAPSELAB_RELIABILITY"))
CALLS, RECIPES, SEED = (
    int(os.environ.get(f"FUZZ_{name}", default)) for name, default in (("CALLS", 500), ("RECIPES", 300), ("SEED", 1))
)
SECONDS, MEMORY, LONGEST = 60, 8 << 30, 6000

NEVER = {"--help", "--upload", "--trust-code", "--install-completion", "--show-completion", "--open", "--no-open"}
"""Options that leave the folder of the test, or run code."""

ODD = [
    "", " ", "0", "-1", "1", "2", "3.5", "-0.0", "1e400", "nan", "inf", "-inf", "²", "٣", "1_000", "0x10", "9" * 25,
    "9" * 5000, "x" * 5000, "\udc80", "\ud800", "[/bold]", "[red]x", "%s%n", "{}", "{0.__class__}", "$(id)", "`id`",
    "a\nb", "a\tb", "\x1b[31m", "\u202eabc", "../x", "../../etc", "./", "nowhere", "/dev/null", "/dev/null/x",
    "/proc/nothing/x", "~", "*", "**", "?", "[", "a[", "step*", "@", "a@", "@b", "a@b*", "id/x@step*", "a/b@../..",
    "+", "a+", "+b", "a+b+c", "hf:", "hf:../..", "hf:a/b:c:d", "hf:a", "true", "null", "~null", "all", "last", "none",
    "auto", "default", "cpu", "cuda:99", "1,2", "1,1000000", "1,,2", ",", "2,1,1", "-0.3,0.3", "1e9,2", "nan,1", "train",
    "validation", "loss", "cdnv", "score:", "score:x", "cost:a,b", "val_loss", "loss_on:x", "within:+0.1", "within:",
    "within:nan", "within:+1e999", "within:+0.1:sham@0.9-0.1", "within:+0.1@a-b", "floor:-1", "nothing:+1", "sphere",
    "class-means", "frozen-code", "coupled-adam", "markov", "markov:order=9,types=9999999", "markov:tokens=1e30",
    "markov:types=2,support=9", "markov:order=0", "markov:zipf=nan", "markov:x", "markov:order=2,order=3",
    "markov:tokens=99999999999999999999", "storyworld:stories=-1", "storyworld:stories=1e99", "storyworld:=", "gpt2",
    "bpe:", "bpe:0", "bpe:²", "bpe:99999999999", "words", "4bit", "(", "(a+)+$", "\\", "hf:me/tiny", "hf:../x",
]  # fmt: skip

CONFIGS = {
    "options": "tokens: 200\nbins: 2\n", "list": "- 1\n- 2\n", "text": "hello", "empty": "", "number": "3",
    "nested": "tokens: {a: 1}\n", "unknown": "tokns: 3\n", "keys": "1: 2\ntrue: 3\n", "null key": "~: 3\n",
    "twice": "seed: 1\nseed: 2\n", "tag": "seed: !!python/object/apply:os.system ['true']\n", "binary": "\x00\x01",
    "deep": "[" * 3000, "infinite": "&a [*a]\n", "nan": "tokens: .nan\nseed: .inf\n", "date": "seed: 2020-01-01\n",
    "boolean": "layers: yes\nnull: no\nclasses: maybe\n", "config": "config: x.yaml\n", "help": "help: true\n",
    "long": "seed: " + "9" * 4000 + "\n", "lists": "layers: [last, all]\ncorpus: []\n", "big": "#" * 1_100_000,
}  # fmt: skip


def options_of(command: Any) -> list[Any]:
    return [option for option in command.params if option.param_type_name == "option" and not set(option.opts) & NEVER]


def find_command(*words: str) -> Any:
    command: Any = typer.main.get_command(cli.app)
    for word in words:
        command = command.commands[word]
    return command


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One of everything that a command can be about, and files that are none of it."""
    place = tmp_path_factory.mktemp("place")
    source = open_source(["storyworld:stories=8,validation=3"])
    corpus = build_corpus(source, place / "corpus", Recipe(tokenizer="bpe:300", block=32))
    config = build_config("gpt-neo", width=8, depth=1, vocabulary=corpus.vocabulary, positions=32)
    build_model(config, seed=0).save_pretrained(place / "model")
    corpus.tokenizer().save_pretrained(place / "model")
    for number in (0, 1):
        save_checkpoint(build_model(config, seed=number), place / "run", str(number))
    quick: dict[str, Any] = {"tokens": 200, "classes": True, "quiet": True}
    measure(place / "model", corpus, out=place / "r.json", **quick)
    measure(place / "model", corpus, out=place / "results", **quick)
    measure(place / "run", corpus, tokens=200, quiet=True)
    write_suite(place / "tables", widths=(32, 64), depths=(1,), decays=(0.0,), seeds=2, inside=False)
    (place / "text.txt").write_text("One day.\n<|endoftext|>\nA bird sang.\n<|endoftext|>\n" * 40)
    recipe = {"corpus": "corpus", "base": {"width": 8, "depth": 1, "steps": 2, "batch": 2, "lr": 1e-3}}
    (place / "recipe.yaml").write_text(yaml.safe_dump({"question": "?", **recipe}))
    for name, text in CONFIGS.items():
        (place / f"{name}.yaml").write_text(text)
    (place / "scores.csv").write_text("run,quiz\n" + "x" * 200_000 + ",1\n")
    (place / "scores.json").write_text(json.dumps({"results": {"a": {"acc": 10**400}}, "model_name": "x"}))
    (place / "damaged.json").write_text((place / "r.json").read_text()[:-40])
    (place / "junk.parquet").write_bytes(b"PAR1" + bytes(range(256)) * 4 + b"PAR1")
    (place / "junk.gguf").write_bytes(b"GGUF\x03\x00\x00\x00" + b"\xff" * 64)
    (place / "junk.csv").write_bytes(b"run,checkpoint\n\xff\xfe,\x00\n")
    (place / "map.json").write_text('{"": "disk"}')
    (place / "adapter").mkdir()
    (place / "adapter" / "adapter_config.json").write_text('{"base_model_name_or_path": "../../../etc"}')
    return place


WHERE = ["--corpus", "corpus", "--out", "OUT"]
BASES: dict[str, tuple[list[str], list[str]]] = {
    "measure": (["measure"], ["model", "--corpus", "corpus", "--tokens", "200"]),
    "measure --data": (["measure"], ["model", "--data", "text.txt", "--tokens", "200", "--block", "16"]),
    "measure several": (["measure"], ["mod*", "run", "--corpus", "corpus", "--tokens", "200", "--out", "swept"]),
    "tokens": (["tokens"], ["r.json", "--min-count", "1"]),
    "compare": (["compare"], ["r.json", "results"]),
    "collect": (["collect"], ["results", "--out", "atlas"]),
    "publish": (["publish"], ["r.json", "--to", "hf:me/tiny"]),
    "publish tables": (["publish"], ["tables", "--to", "hf:me/tiny", "--out", "published"]),
    "analyze": (["analyze"], ["tables", "--permutations", "99"]),
    "report": (["report"], ["tables", "--out", "page.html"]),
    "import": (["import"], ["junk.csv", "--out", "imported"]),
    "corpus build": (["corpus", "build"], ["text.txt", "--out", "built", "--block", "16", "--tokenizer", "bpe:300"]),
    "corpus show": (["corpus", "show"], ["corpus"]),
    "train": (["train"], [*WHERE, "--width", "8", "--depth", "1", "--steps", "2", "--batch", "2", "--lr", "1e-3"]),
    "sample": (["sample"], ["run", "--tokens", "5"]),
    "suite plan": (["suite", "plan"], ["recipe.yaml", "--no-timing"]),
    "suite status": (["suite", "status"], ["tables"]),
    "suite collect": (["suite", "collect"], ["tables"]),
    "metrics": (["metrics"], []),
    "interventions": (["interventions"], []),
}


def drawn_call(chance: random.Random, number: int, files: list[str]) -> tuple[list[str], dict[str, str]]:
    """A call and the variables of its environment."""
    command, base = BASES[chance.choice(list(BASES))]
    words = [f"out{number}" if word == "OUT" else word for word in base]
    values = [*ODD, *files]
    if words and not words[0].startswith("-") and chance.random() < 0.4:
        words[0] = chance.choice(values)
    variables: dict[str, str] = {}
    options = options_of(find_command(*command))
    for option in chance.sample(options, min(len(options), chance.choice((0, 1, 1, 2, 3)))):
        name = max(option.opts, key=len)
        value = chance.choice(values)
        if chance.random() < 0.15 and "\x00" not in value:
            variables["_".join(["COLLAPSELAB", *command, name.lstrip("-")]).upper().replace("-", "_")] = value
        elif option.is_flag:
            words.append(name)
        else:
            words += [name, value]
    return [*command, *words], variables


@contextlib.contextmanager
def limited() -> Iterator[None]:
    """With an end: an exception after some seconds of work, and where memory is asked for without measure."""

    def stop(*_: object) -> None:
        raise TimeoutError(f"no end after {SECONDS} seconds")

    before = signal.signal(signal.SIGPROF, stop)
    limits = resource.getrlimit(resource.RLIMIT_DATA)
    used = int(Path("/proc/self/status").read_text().partition("VmData:")[2].split()[0]) << 10
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    resource.setrlimit(resource.RLIMIT_DATA, (used + MEMORY, limits[1]))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
        resource.setrlimit(resource.RLIMIT_DATA, limits)


def fault_of(words: list[str], monkeypatch: pytest.MonkeyPatch) -> str | None:
    """What is wrong with how a call ended; None if nothing is."""
    said, data = io.StringIO(), io.StringIO()
    monkeypatch.setattr(sys, "argv", ["collapselab", *words])
    try:
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(data), limited():
            cli.main()
        status: object = 0
    except SystemExit as exit:
        status = exit.code or 0
    except BaseException:  # noqa: BLE001  a traceback is what is looked for
        return traceback.format_exc(limit=-4)
    message = said.getvalue()
    if status not in (0, 1, 2) or "Traceback" in message:
        return f"status {status}: {message[-500:]}"
    refusals = [line for line in message.splitlines() if line.startswith("collapselab: ")]
    if status == 2 and not refusals and "Usage" not in message and not data.getvalue().strip():  # a plan says it there
        return f"status 2 without a message: {message[-500:]}"
    if len(refusals) > 1:
        return f"{len(refusals)} messages: {message[:500]}"
    return f"{len(message):,} characters: {message[:300]}" if status == 2 and len(message) > LONGEST else None


@pytest.mark.skipif(not LONG, reason="runs with COLLAPSELAB_RELIABILITY set, on Linux")
@pytest.mark.filterwarnings("ignore")
def test_odd_calls_end_with_a_status_and_one_message(
    place: Path, monkeypatch: pytest.MonkeyPatch, one_thread: None
) -> None:
    monkeypatch.chdir(place)
    monkeypatch.setenv("XDG_CACHE_HOME", str(place / "cache"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    files = sorted(path.name for path in place.iterdir())
    chance, faults, statuses = random.Random(SEED), [], 0
    for number in range(CALLS):
        words, variables = drawn_call(chance, number, files)
        with monkeypatch.context() as patch:
            for name, value in variables.items():
                patch.setenv(name, value)
            fault = fault_of(words, patch)
        statuses += 1
        if fault is not None:
            faults.append(f"{variables} {[word[:80] for word in words]}\n{fault}")
            if LONG:
                print(faults[-1], flush=True)
    assert statuses == CALLS
    assert not faults, "\n\n".join(faults)


GOOD: dict[str, Any] = {
    "question": "Does it hold?",
    "corpora": {"a": {"source": "storyworld:stories=24,validation=8", "tokenizer": "bpe:300", "block": 32}},
    "base": {"corpus": "a", "depth": 1, "width": 16, "lr": 3e-3, "batch": 8, "steps": 30},
    "arms": ["none", "within:+0.1"],
    "grid": {"seed": [0, 1]},
    "primary": {"metrics": ["cdnv_log"], "seeds": 2},
    "checkpoints": [0, 1],
    "measure": {"tokens": 600, "bins": 2, "push": "-0.3,0.3", "classes": True, "contexts": "1,2", "deciders": True},
    "resources": {"partition": "gpu", "minutes": 60, "setup": ["module load x"]},
}
MODELS: dict[str, Any] = {
    "question": "Which?",
    "models": ["owner/model@step*", "../../etc", "a+b"],
    "data": {"source": "storyworld", "max_tokens": 1000},
    "measure": {"tokens": 100},
}
HARMFUL = [
    None, True, [], {}, [[]], {"": 1}, -1, 0, 10**30, 1e308, float("nan"), float("inf"), "", "../../x", "/x", "a\nb", "[/b]",
    "x" * 100_000, "\x00", {"a": {"b": {"c": [1, 2, {"d": None}]}}}, [None], ["none"] * 3000, "markov:types=99999999",
    "within:+nan", "within:+0.1:sham:sham", "@", "*", "a@*", "1,1000000", {"source": "storyworld"}, "2020-01-01",
]  # fmt: skip


def damaged_recipe(chance: random.Random) -> Any:
    """A recipe in which one or two places are something else."""
    document = json.loads(json.dumps(chance.choice((GOOD, GOOD, MODELS))))
    for _ in range(chance.choice((1, 1, 2))):
        here, key = document, chance.choice(list(document))
        while isinstance(here[key], dict | list) and here[key] and chance.random() < 0.7:
            here = here[key]
            key = chance.choice(list(here) if isinstance(here, dict) else range(len(here)))
        if isinstance(here, dict) and chance.random() < 0.2:
            here[chance.choice(["x", "models", "arms", "small", "grid", "name"])] = chance.choice(HARMFUL)
        else:
            here[key] = chance.choice(HARMFUL)
    return document


@pytest.mark.skipif(not LONG, reason="runs with COLLAPSELAB_RELIABILITY set, on Linux")
def test_odd_recipes_are_planned_or_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, one_thread: None) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    chance, faults = random.Random(SEED), []
    (tmp_path / "good.yaml").write_text(yaml.safe_dump(GOOD))
    load_suite(tmp_path / "good.yaml")
    for _ in range(RECIPES):
        (tmp_path / "r.yaml").write_text(yaml.safe_dump(damaged_recipe(chance)))
        fault = fault_of(["suite", "plan", "r.yaml", "--no-timing", "--out", "suite"], monkeypatch)
        if fault is not None:
            faults.append(f"{(tmp_path / 'r.yaml').read_text()[:1500]}\n{fault}")
            if LONG:
                print(faults[-1], flush=True)
    assert not faults, "\n\n".join(faults)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["good.yaml", "r.yaml"], "planning writes nothing"
