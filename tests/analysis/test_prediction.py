import numpy as np
import pytest

from analysis.planted import run_of, table
from collapselab.analysis.models import Models
from collapselab.analysis.prediction import Prediction, predictions


def suite(metric_of: str, *, tokens: bool = True, bend: float = 0.0) -> Models:
    """24 models of 12 architectures whose loss is a power law with a luck of each architecture that parameters hide."""
    rng = np.random.default_rng(4)
    runs, values = [], []
    for w in range(6):
        for depth in (1, 2):
            luck = rng.standard_normal()
            for epochs in (1, 4):
                size = 1000 * 4**w * depth
                log_loss = 3 - 0.1 * np.log(size) - 0.2 * np.log(epochs) + bend * np.log(size) ** 2 + 0.1 * luck
                runs.append(run_of(
                    f"{w}{depth}{epochs}", width=64 * 2**w, depth=depth, epochs=float(epochs), epoch=float(epochs),
                    parameters=size, tokens=10_000 * epochs if tokens else None, val_loss=float(np.exp(log_loss)),
                ))  # fmt: skip
                values.append({"luck": 5 + luck, "noise": 5 + rng.standard_normal(), "none": 1.0}[metric_of])
    return table(runs, {"agreement": values})


def row_of(rows: list[Prediction], law: str = "power law") -> Prediction:
    return next(row for row in rows if row.law == law)


def test_a_metric_that_knows_what_the_law_does_not_makes_it_exact() -> None:
    row = row_of(predictions(suite("luck")))
    assert row.r2_law is not None
    assert row.r2_law < 0.97
    assert row.r2_with_metric == pytest.approx(1, abs=1e-9)
    assert row.low is not None
    assert row.low > 0
    assert (row.n, row.architectures, row.scale) == (24, 12, "parameters and tokens")


def test_noise_gains_nothing() -> None:
    row = row_of(predictions(suite("noise")))
    assert row.gain is not None
    assert row.low is not None
    assert row.gain < 0.01
    assert row.low < 0


def test_the_left_out_r2_by_hand() -> None:
    models = suite("noise")
    frame = models.trained
    predicted = np.empty(len(frame))
    for architecture in frame["architecture"].unique():
        held = (frame["architecture"] == architecture).to_numpy()
        z = np.column_stack([np.ones(len(frame)), np.log(frame["parameters"]), np.log(frame["tokens"])])
        fit = np.linalg.solve(z[~held].T @ z[~held], z[~held].T @ np.log(frame["val_loss"][~held]))
        predicted[held] = np.exp(z[held] @ fit)
    loss = frame["val_loss"].to_numpy()
    by_hand = 1 - ((loss - predicted) ** 2).sum() / ((loss - loss.mean()) ** 2).sum()
    assert row_of(predictions(models)).r2_law == pytest.approx(by_hand, rel=1e-9)


def test_without_tokens_the_epoch_stands_for_them() -> None:
    known, unknown = (row_of(predictions(suite("noise", tokens=tokens))) for tokens in (True, False))
    assert unknown.scale == "parameters and epoch"
    assert unknown.r2_law == pytest.approx(known.r2_law, rel=1e-9)


def test_the_bending_law_bends() -> None:
    rows = predictions(suite("noise", bend=0.02))
    stiff, bending = row_of(rows).r2_law, row_of(rows, "bending power law").r2_law
    assert stiff is not None
    assert bending is not None
    assert bending > stiff + 0.05


def test_what_cannot_be_predicted_has_a_reason() -> None:
    assert row_of(predictions(suite("none"))).why == "agreement is the same in all 24 models."
    runs = [run_of(f"{i}", width=i, val_loss=1.0 + i) for i in range(1, 4)]
    row = row_of(predictions(table(runs, {"agreement": [1, 2, 3]})))
    assert row.why == "3 architectures; to leave each out in turn takes 7 or more."
    assert row.gain is None


def test_a_fit_without_degrees_of_freedom_is_not_made() -> None:
    runs = [run_of(f"{i}", width=i, parameters=100 * i, val_loss=1.0 + 1 / i) for i in range(1, 12)]
    rows = predictions(table(runs, {"agreement": [i**2 for i in range(1, 12)]}))
    assert row_of(rows).why is None
    bending = row_of(rows, "bending power law")
    assert (bending.gain, bending.low) == (None, None)
    assert bending.why == "10 models are left to fit 5 parameters to; 11 are needed."
