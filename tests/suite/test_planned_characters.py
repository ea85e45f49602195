"""A corpus of characters is planned before it is built: a token a character, and no vocabulary of another tokenizer."""

from pathlib import Path

import yaml

from collapselab.suite.plan import corpus_facts
from collapselab.suite.recipe import load_suite


def test_characters_are_planned_as_one_token_each(tmp_path: Path) -> None:
    text = "abc abd\n" * 4000
    (tmp_path / "text.txt").write_text(text)
    recipe = {
        "question": "?",
        "corpus": {"source": str(tmp_path / "text.txt"), "tokenizer": "characters", "block": 32},
        "base": {"width": 16, "depth": 1},
        "grid": {"seed": [0]},
    }
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    (facts,) = corpus_facts(load_suite(tmp_path / "recipe.yaml"), tmp_path / "suite").values()
    assert facts.vocabulary == len(set(text)) + 2
    assert 0.9 * len(text) < 32 * (facts.blocks + facts.validation_blocks) < 1.1 * len(text)
