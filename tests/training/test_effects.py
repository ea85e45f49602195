"""Every intervention moves what it is for, in a small training: + one way, − the other, and its sham not.

These run when they are asked for, `pytest -m effects`: a few seconds for each training.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from collapselab import measure
from collapselab.corpus.build import Recipe, build_corpus
from collapselab.corpus.sources import open_source
from collapselab.records.run import RunFolder
from collapselab.training.interventions import INTERVENTIONS
from training.runs import logged, run

pytestmark = [pytest.mark.effects, pytest.mark.usefixtures("one_thread")]

WITH_LABELS = {"within", "floor", "cdnv", "simreg", "uniform_means", "dual", "dual_uniform"}
NOT_INERT = {"simreg", "uniform_means"}
"""Penalties that push features apart whatever the labels: the sham is the control for that part, and moves too."""
SETTINGS = {"width": 32, "depth": 1, "head_size": 16, "batch": 16, "steps": 200, "lr": 5e-3, "warmup": 0.05}
Trained = Callable[..., dict[str, float]]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """What was measured of the model that a dose or other settings give, and the mean penalty of its last steps."""
    folder, known = tmp_path_factory.mktemp("effects"), dict[str, dict[str, float]]()
    source = open_source(["storyworld:stories=800,validation=20,seed=1"])
    build_corpus(source, folder / "corpus", Recipe(tokenizer="bpe:600", block=64))

    def values(dose: str = "none", **settings: Any) -> dict[str, float]:
        name = " ".join([dose.replace(":", "_"), *(f"{key} {value}" for key, value in settings.items())])
        if name not in known:
            run(folder / "corpus", folder / name, intervene=[dose] if dose != "none" else [], **SETTINGS | settings)
            known[name] = _measured(folder / name, folder / "corpus")
        return known[name]

    return values


def _measured(out: Path, corpus: Path) -> dict[str, float]:
    last = RunFolder(out).checkpoints()[-1]
    rows = measure(str(last.path), corpus, tokens=20_000).rows
    values = {row.metric: row.value for row in rows if row.split == "train" and row.value is not None}
    names = {name for entry in RunFolder(out).read_log() for name in entry if name.endswith("/penalty")}
    return values | {name: sum(logged(out, name)[-20:]) / 20 for name in names}


MOVES = [name for name, entry in INTERVENTIONS.items() if entry.primary is not None]


@pytest.mark.parametrize("name", MOVES)
def test_it_moves_its_primary_metric_the_way_it_says(name: str, trained: Trained) -> None:
    entry = INTERVENTIONS[name]
    assert entry.primary is not None
    way = 1 if entry.plus == "rises" else -1
    plus, minus = (f"{name}:+0.3", f"{name}:-0.3") if entry.signs == "both" else (f"{name}:0.3", None)
    none, sham = trained("none")[entry.primary], f"{plus}:sham"
    moved, seen = way * (trained(plus)[entry.primary] - none), 0.05 * abs(none)
    if minus is not None:
        assert way * (trained(minus)[entry.primary] - none) < -seen
    if name in NOT_INERT:
        assert moved > 0
        assert moved - way * (trained(sham)[entry.primary] - none) > seen
    else:
        assert moved > seen
        assert name not in WITH_LABELS or abs(trained(sham)[entry.primary] - none) < 0.35 * moved


def test_flat_moves_the_curvature_of_the_steps(trained: Trained) -> None:
    none, flatter, sharper = (trained(f"flat:{dose}")["flat/penalty"] for dose in ("0", "+0.3", "-0.3"))
    assert flatter < 0.9 * none
    assert sharper > 1.05 * none


def test_sphere_makes_the_rows_of_the_output_layer_alike_in_length(trained: Trained) -> None:
    none, sphere = (trained(tied=False, head=head)["head_norm_cv"] for head in ("learned", "sphere"))
    assert sphere < 0.05 * none, "0 over all trained tokens; some of them are not among those measured"


def test_sphere_makes_class_means_alike_in_length_where_the_next_token_is_certain(tmp_path: Path) -> None:
    """Features of one length have ‖μ_c‖² = D − σ_c²: it takes classes that are points, as 24 words in a cycle are."""
    build_corpus(
        open_source(["markov:order=1,types=24,support=2,tokens=2000"]),
        tmp_path / "words",
        Recipe(tokenizer="words", block=64),
    )
    words = [f"t{number}" for number in range(24)]
    texts = (" ".join(words[(start + place) % 24] for place in range(80)) for start in range(480))
    (tmp_path / "cycle.txt").write_text("\n\n".join(texts))
    recipe = Recipe(tokenizer=str(tmp_path / "words" / "tokenizer"), block=64, packing="document")
    build_corpus(open_source([str(tmp_path / "cycle.txt")]), tmp_path / "cycle", recipe)
    run(tmp_path / "cycle", tmp_path / "run", head="sphere", tied=False, **SETTINGS)
    values = _measured(tmp_path / "run", tmp_path / "cycle")
    assert values["within_share"] < 0.01
    assert values["norm_cv"] < 0.01
    assert values["head_norm_cv"] < 1e-4


def test_class_means_are_the_rows_of_their_head(trained: Trained) -> None:
    """On a sample, whose means are not those of all tokens; `test_normalised_heads` measures all."""
    none, means = (trained(tied=False, head=head)["duality_cos_mean"] for head in ("learned", "class-means"))
    assert means > 0.94
    assert means > none + 0.05


def test_rows_of_a_code_stay_more_even_than_drawn_ones_and_those_than_learned_ones(trained: Trained) -> None:
    heads = ("frozen-code", "frozen-sphere", "learned")
    code, sphere, learned = (trained(tied=False, head=head)["head_logdist_std"] for head in heads)
    assert code < 0.98 * sphere
    assert sphere < 0.6 * learned


def test_the_sum_of_rows_falls_with_the_coupling_where_they_are_not_tied(trained: Trained) -> None:
    """In 200 steps, between the two ends; `test_optimizers` has weights at rest, where it falls with every share."""
    apart, coupled = (trained(tied=False, weight_decay=0.005, coupling=share)["head_sum"] for share in (0.0, 1.0))
    assert coupled < 0.8 * apart


def test_noise_moves_nothing_of_the_collapse(trained: Trained) -> None:
    moved = {dose: trained(dose)["cdnv_log"] - trained("none")["cdnv_log"] for dose in ("noise:0.3", "within:+0.3")}
    assert abs(moved["noise:0.3"]) < 0.25 * abs(moved["within:+0.3"])
