"""Names, sizes, costs: what a suite comes to before anything is trained."""

import itertools
import re
from pathlib import Path
from typing import Any

import pytest

from collapselab.errors import ConfigError
from collapselab.records.options import Options
from collapselab.records.suite import CorpusOfRun
from collapselab.suite import collect
from collapselab.suite import plan as planning
from collapselab.suite.plan import CorpusFacts, Entry, SuitePlan, corpus_facts, pace, plan_suite, run_name
from collapselab.suite.recipe import load_suite, parse_suite, shipped_recipes
from collapselab.training import Choice
from collapselab.training.heads import HEADS
from collapselab.training.interventions import INTERVENTIONS, Intervention
from collapselab.training.settings import resolved, settings_from

CORPUS = CorpusFacts("corpus", Path("nowhere"), "0123456789abcdef", 64, 1000, 10, 500)


def planned(text: str, corpus: CorpusFacts = CORPUS) -> SuitePlan:
    recipe = f"question: Why?\ncorpus: {{source: storyworld}}\n{text}"
    return plan_suite(parse_suite(recipe, name="mine"), {"corpus": corpus})


def entry(**values: Any) -> Entry:
    return planned(f"base: {values}").entries[0]


def test_a_name_is_readable_and_ends_in_the_identity() -> None:
    settings = settings_from({"width": 128, "depth": 2, "epochs": 3, "lr": 2e-3, "seed": 1, "tied": False})
    assert re.fullmatch(r"02x0128-e3-untied-lr0\.002-s1-[0-9a-f]{8}", run_name(settings, "x"))
    llama = settings_from({"width": 128, "depth": 2, "family": "llama", "steps": 500, "optimizer": "sgd"})
    assert re.fullmatch(r"llama-02x0128-n500-sgd-[0-9a-f]{8}", run_name(llama, "x"))


def test_the_same_run_said_in_another_way_has_the_same_name() -> None:
    short = settings_from({"width": 64, "depth": 1})
    long = settings_from({"width": 64, "depth": 1, "batch": 16, "epochs": 1.0, "data_seed": 0, "lr": 5e-5})
    assert run_name(short, "x") == run_name(long, "x")


def test_another_setting_or_corpus_is_another_name() -> None:
    base: dict[str, Any] = {"width": 64, "depth": 1}
    others: list[dict[str, Any]] = [{}, {"seed": 1}, {"checkpoints": "0,1"}, {"dropout": 0.1}, {"batch": 8}]
    names = [run_name(settings_from(base | other), "x") for other in others]
    names.append(run_name(settings_from(base), "y"))
    assert len(set(names)) == len(names)


def test_no_two_runs_of_a_shipped_recipe_share_a_name() -> None:
    for recipe in shipped_recipes():
        suite = load_suite(recipe)
        names = [run_name(settings, corpus) for settings, corpus in suite.runs]
        assert len(set(names)) == len(names), recipe


@pytest.mark.parametrize(("width", "depth"), [(64, 1), (768, 2), (1024, 12)])
def test_parameters_and_operations_are_those_of_the_formulas(width: int, depth: int) -> None:
    """6 N + 12 L D T a token, as in the appendix of PaLM (arXiv:2204.02311), where local layers see two windows, not T."""
    corpus = CorpusFacts("corpus", Path("nowhere"), "x", 2048, 229000, 2290, 50257)
    one = planned(f"base: {{width: {width}, depth: {depth}}}", corpus).entries[0]
    parameters = 52305 * width + depth * (12 * width**2 + 10 * width) + 2 * width  # METRICS.md
    assert one.parameters == parameters
    tokens = one.planned.steps * one.planned.batch * 2047
    matrices = 50257 * width + 12 * depth * width**2
    compared = -(-depth // 2) * 2048 + depth // 2 * (512 - 256 / 8)  # the first of eight windows has none before it
    assert one.flops == pytest.approx(tokens * (6 * matrices + 12 * width * compared), rel=1e-12)


def test_an_input_matrix_that_is_not_the_output_matrix_costs_no_products() -> None:
    tied, untied = entry(width=64, depth=1), entry(width=64, depth=1, tied=False)
    assert untied.parameters == tied.parameters + 500 * 64
    assert untied.flops == tied.flops


def test_the_same_run_twice_is_done_once_and_said() -> None:
    found = planned("base: {depth: 1}\ngrid: {width: [8, 16, 8]}\nruns: [{width: 16, batch: 16}]")
    assert [one.settings.width for one in found.entries] == [8, 16]
    (warning,) = found.warnings
    assert re.search(r"^2 runs .* run 3 \(", warning)


def test_a_run_that_cannot_be_is_named_and_the_others_are_planned() -> None:
    found = planned("base: {depth: 1, family: llama}\ngrid: {width: [24, 32]}")
    assert len(found.entries) == 1
    assert re.search(r"run 1 \(.*width 24.*\): llama: width 24 makes heads of 3", found.impossible[0])


def test_the_size_of_a_corpus_is_guessed_before_it_is_built(tmp_path: Path) -> None:
    """Within a third of what was counted after building: 280 and 204 tokens a story with 1,024 and 4,096 classes."""
    for vocabulary, tokens in ((1024, 280), (4096, 204)):
        text = f"question: Why?\ncorpus: {{source: 'storyworld:stories=5000', tokenizer: 'bpe:{vocabulary}', block: 128}}\n"
        suite = parse_suite(text + "base: {width: 8, depth: 1}", name="mine")
        facts = corpus_facts(suite, tmp_path)["corpus"]
        assert facts.hash is None
        assert 2 / 3 < facts.blocks / (5000 * tokens / 128) < 3 / 2
        assert facts.validation_blocks == pytest.approx(facts.blocks / 5, rel=0.01)


def test_time_is_found_from_the_largest_model_that_is_quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a machine that takes 1 ns an operation, that is what comes out."""
    found = planned("base: {depth: 1}\ngrid: {width: [8, 16, 64, 4096]}").entries
    ticks, chosen = itertools.count(), found[2]
    timed = chosen.step_flops(min(chosen.planned.batch, planning.STEP_TOKENS // chosen.planned.block))
    monkeypatch.setattr(planning.time, "perf_counter", lambda: 1e-9 * timed * next(ticks))
    measured = pace(found, device="cpu")
    assert measured == pytest.approx(1e9), "the largest would take too long"
    options, one = Options(tokens=1000), found[0]
    each = planning.CHECKPOINT_SECONDS + 1e-9 * one.measure_flops(options)
    assert one.seconds(measured, options) == pytest.approx(1e-9 * one.flops + 2 * each)


def test_a_few_steps_are_really_timed() -> None:
    found = pace(planned("base: {depth: 1, batch: 2}\ngrid: {width: [8, 64]}").entries, device="cpu")
    assert found > 1e6


def test_measuring_with_a_sample_costs_less() -> None:
    one = entry(width=64, depth=1)
    assert one.measure_flops(Options(tokens=100)) < one.measure_flops(Options())


def test_a_plan_goes_by_distinct_models_not_by_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    from collapselab.models import build

    counted = itertools.count()
    real = build.architecture
    monkeypatch.setattr(build, "architecture", lambda config: (next(counted), real(config))[1])
    planned(f"base: {{depth: 3, width: 40}}\ngrid: {{seed: {list(range(50))}}}")
    assert next(counted) == 1


def toy(name: str) -> Intervention:
    return Intervention(name, "For tests.", "", "ours", "cdnv", "both", lambda step: None)


def test_head_and_interventions_are_in_a_runs_name_as_a_folder_may_have_them(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("within", "dual", "u" * 200):
        monkeypatch.setitem(INTERVENTIONS, name, toy(name))
    monkeypatch.setitem(HEADS, "frozen", Choice(lambda *_: None, "For tests.", "", "ours"))

    def named(intervene: list[str], **values: Any) -> str:
        settings = settings_from({"width": 64, "depth": 1, "intervene": intervene, **values})
        name = run_name(settings, "x")
        assert re.fullmatch(r"[\w.-]{1,160}", name)
        return name[:-9]

    assert named(["within:+0.1"]) == "01x0064-e1-within0.1"
    assert named(["within:-0.1:sham@0.7-1"], seed=2) == "01x0064-e1-within-0.1sham-0.7to1-s2"
    assert named(["within:+0.1", "dual:-0.3"], head="frozen", tied=False) == (
        "01x0064-e1-untied-frozen-dual-0.3-within0.1"
    )
    assert named([f"{'u' * 200}:+0.1"]) == f"01x0064-e1-{'u' * 100}"


def test_several_interventions_are_one_cell_of_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("within", "dual"):
        monkeypatch.setitem(INTERVENTIONS, name, toy(name))
    settings = settings_from({"width": 8, "depth": 1, "intervene": ["within:+0.1:sham", "dual:-0.3"]})
    columns = collect._setting_columns("a run", resolved(settings), CorpusOfRun(path="corpora/mine", hash="x"))
    assert columns["intervene"] == "dual:-0.3 within:+0.1:sham"


def test_a_recipe_takes_interventions_as_a_list_or_an_axis(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(INTERVENTIONS, "within", toy("within"))
    recipe = "base: {width: 8, depth: 1, steps: 50}\ngrid: {intervene: [[], [within:+0.1], 'within:-0.1:sham']}"
    found = planned(recipe)
    assert not found.impossible
    assert [one.settings.intervene for one in found.entries] == [(), ("within:+0.1",), ("within:-0.1:sham",)]
    with pytest.raises(
        ConfigError, match=r"line \d+: base.intervene: withn is not an intervention. Did you mean within"
    ):
        planned("base: {width: 8, depth: 1, intervene: ['withn:+0.1']}")
    (why,) = planned("base: {width: 8, depth: 1, steps: 10, intervene: ['within:+0.1']}").impossible
    assert "intervene within:+0.1): intervene: within:+0.1 acts in no step of a training of 10" in why
