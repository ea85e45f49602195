import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from collapselab.errors import ConfigError
from collapselab.training.optimizers import OPTIMIZERS
from collapselab.training.settings import settings_from
from training.runs import run, weights

QUICK = """
import sys
from collapselab.training.heads import HEADS
from collapselab.training.interventions import INTERVENTIONS
from collapselab.training.optimizers import OPTIMIZERS
from collapselab.training.settings import settings_from
settings_from({"width": 16, "depth": 1, "optimizer": "sgd", "head": "learned", "intervene": []})
print("torch" in sys.modules)
"""


def test_a_further_optimiser_is_a_function_and_an_entry(
    corpus_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that moves every weight by -lr · sign(gradient): after one step, each has moved by lr or not at all."""

    class Sign(torch.optim.Optimizer):
        @torch.no_grad()
        def step(self, closure: Any = None) -> None:
            for group in self.param_groups:
                for parameter in group["params"]:
                    parameter.sub_(group["lr"] * parameter.grad.sign())

    monkeypatch.setitem(OPTIMIZERS, "sign", lambda groups, settings: Sign(groups, {"lr": settings.lr}))
    run(corpus_folder, tmp_path / "run", optimizer="sign", steps=1, lr=2.0**-10)
    before, after = weights(tmp_path / "run", first=True), weights(tmp_path / "run")
    moved = torch.cat([(after[name] - before[name]).abs().flatten() for name in before])
    assert ((moved == 0) | ((moved - 2.0**-10).abs() < 1e-6)).all()
    assert (moved > 0).float().mean() > 0.5


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("adanw", "optimizer: 'adanw' will not do: did you mean 'adamw'\\? It is 'adamw', 'adam' or 'sgd'\\."),
        ("lion", "optimizer: 'lion' will not do: it is 'adamw', 'adam' or 'sgd'\\."),
        (3, "optimizer: 3 will not do: input should be a valid string"),
    ],
)
def test_an_optimiser_that_there_is_not_is_named_with_the_nearest(given: object, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        settings_from({"width": 16, "depth": 1, "optimizer": given})


def test_settings_are_checked_against_the_tables_without_torch() -> None:
    result = subprocess.run([sys.executable, "-c", QUICK], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "False"
