"""Percentiles among reference models, and when there are none."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from collapselab.records import references
from collapselab.records.profile import HEADLINE_METRICS
from collapselab.records.references import PRETRAINED, Reference, compare_with_references, reference_row
from collapselab.records.tables import Row


def rows(agreement: float, *, classes: int = 800, tokens: int = 50_000) -> list[Row]:
    return [
        Row(run="r", checkpoint="-", split="train", layer="last", bin="all", metric="agreement", value=agreement,
            classes=classes, tokens=tokens)
    ]  # fmt: skip


def reference(agreement: float, *, source: str = "scale", parameters: int = 200_000, classes: int = 823) -> Reference:
    return Reference(
        "m", source, "TinyStories", "0123456789abcdef", parameters, classes, 50_038, {"agreement": agreement}
    )


@pytest.fixture
def ten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten models with an agreement of 0.1 to 1.0, and a pretrained one of another size."""
    others = tuple(reference(number / 10) for number in range(1, 11))
    others = tuple(replace(one, text_hash="") for one in others)
    pretrained = reference(0.22, source=PRETRAINED, parameters=134_000_000, classes=1_900)
    monkeypatch.setattr(references, "references", lambda: (*others, pretrained))


@pytest.mark.usefixtures("ten")
class TestComparison:
    def test_percentile_is_the_share_of_models_farther_from_the_ideal(self) -> None:
        found = compare_with_references(rows(0.65), "roneneldan/TinyStories", 170_000)
        assert (found.heading, found.cells) == ("percentile", {"agreement": "60 %"})

    def test_exact_text_is_recognised_by_its_hash(self) -> None:
        found = compare_with_references(rows(0.65), "train.txt 01234567, blocks of 256", 170_000)
        assert found.heading == "percentile", "models without a hash are on the same text, by its name"

    @pytest.mark.parametrize(
        ("changed", "parameters"),
        [({}, 1_700_000), ({"classes": 4_000}, 170_000)],
        ids=["other decade of parameters", "five times the classes"],
    )
    def test_model_that_is_not_alike_gets_the_pretrained_one_beside_it(self, changed: dict, parameters: int) -> None:
        found = compare_with_references(rows(0.65, **changed), "TinyStories", parameters)
        assert (found.heading, found.cells) == ("m", {"agreement": "0.22"})

    def test_other_sample_size_or_text_is_not_compared(self) -> None:
        few = compare_with_references(rows(0.65, tokens=5_000), "TinyStories", 170_000)
        elsewhere = compare_with_references(rows(0.65), "wikitext", 170_000)
        assert few.cells is None
        assert elsewhere.cells is None
        assert "TinyStories" in elsewhere.sentence

    def test_pretrained_model_is_not_compared_with_itself(self) -> None:
        assert compare_with_references(rows(0.22, classes=1_900), "TinyStories", 134_000_000).cells is None


def test_shipped_models_have_plausible_values() -> None:
    shipped = references.references()
    assert len(shipped) > 250
    assert {one.source for one in shipped} >= {"arXiv:2405.17767", "scale", "families", PRETRAINED}
    for one in shipped:
        assert set(one.values) <= set(HEADLINE_METRICS)
        assert 0 <= one.values["agreement"] <= 1
        assert -1 <= one.values["duality_cos_mean"] <= 1


def test_a_model_of_the_laboratory_has_enough_models_alike() -> None:
    found = compare_with_references(rows(0.2), "TinyStories", 173_440)
    assert found.heading == "percentile"


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("EleutherAI/pythia-1.4b", "pythia-1.4b"),
        ("/home/alice/models/mine/", "mine"),
        ("C:\\Users\\alice\\mine", "mine"),
        ("/home/alice/SmolLM2-135M.Q4_1.gguf", "SmolLM2-135M"),
    ],
)
def test_the_row_of_a_measured_model_names_it_without_its_folder(model: str, name: str) -> None:
    facts = {"model": model, "text": "TinyStories", "text_hash": "0123456789abcdef", "parameters": 170_000}
    measured: Any = SimpleNamespace(name=model, facts=facts, rows=rows(0.25))
    row = reference_row(measured)
    assert row["model"] == name
    assert (row["agreement"], row["classes"], row["tokens"]) == ("0.25", 800, 50_000)
    assert "alice" not in str(row)
