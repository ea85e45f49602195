"""A training with toys of loss terms, for `torchrun`: CORPUS OUT."""

import sys
from pathlib import Path

from collapselab.training.interventions import INTERVENTIONS, Intervention
from collapselab.training.interventions.step import Step
from training.runs import run


def kept(step: Step):
    """Squared distance from the mean of all features so far: what is kept is the same in all processes."""
    sums = step.total(step.features.detach().sum(0))
    mean = step.kept.setdefault("mean", sums * 0)
    mean.lerp_(sums / step.total(step.features.new_tensor(len(step.features))), 0.1)
    return (step.features - mean).square().mean()


def rows(step: Step):
    return step.head.weight.square().mean()


def add_toys() -> None:
    INTERVENTIONS["kept"] = Intervention("kept", "For tests.", "", "ours", "cdnv", "both", kept)
    INTERVENTIONS["rows"] = Intervention("rows", "For tests.", "", "ours", "cdnv", "both", rows, dose_over="head")


def train_with_toys(corpus: Path, out: Path) -> None:
    run(corpus, out, intervene=["kept:+0.3", "rows:+0.1"], steps=26, options={"log_every": 1})


if __name__ == "__main__":
    add_toys()
    train_with_toys(Path(sys.argv[1]), Path(sys.argv[2]))
