"""A suite that nobody trained: tables as a real one writes them, with trends, nulls, seeds, layers, bins and failures.

Run as a script it writes one to look at: `python tests/report/suites.py DIR`.
"""

import sys
from pathlib import Path
from typing import Any

import numpy as np

from collapselab.records.run import BuiltModel, PlannedRun, Provenance, RunRecord, TrainedOn
from collapselab.records.tables import RESULTS, RUNS, Row, Run

METRICS = {
    "cdnv": (40.0, 0.45), "cdnv_k2": (0.2, 0.3), "norm_cv": (0.6, 0.85), "lognorm_cv": (0.14, 0.8),
    "cosine_cv": (60.0, 1.3), "logdist_uncentred_cv": (-1.2, 0.7), "duality_cos_mean": (0.12, 1.25),
    "duality_cos_cv": (2.2, 0.7), "agreement": (0.05, 1.6), "effective_rank": (30.0, 1.2), "model_accuracy": (0.2, 1.1),
}  # fmt: skip
"""Of the smallest model after an epoch, and the factor that every step of scale or training puts on it."""
EPOCHS = (0.0, 1.0, 2.0, 4.0)


def write_suite(
    folder: Path,
    *,
    widths: tuple[int, ...] = (32, 64, 128),
    depths: tuple[int, ...] = (1, 2, 4),
    decays: tuple[float, ...] = (0.0, 0.1),
    seeds: int = 6,
    metrics: tuple[str, ...] = tuple(METRICS),
    inside: bool = True,
    failures: int = 2,
    name: str = "",
    why: str = "loss is nan at step 1,240. Stopped before the update; the last checkpoint is epoch 1.",
) -> Path:
    """Write runs.csv, results.csv and every run.json of a suite; the middle architecture has several seeds."""
    rng = np.random.default_rng(0)
    runs: list[Run] = []
    rows: list[Row] = []
    middle = (widths[len(widths) // 2], depths[len(depths) // 2], decays[0])
    for width in widths:
        for depth in depths:
            for decay in decays:
                for seed in range(seeds if (width, depth, decay) == middle else 1):
                    found = one_run(rng, f"{name}{depth:02}x{width:04}-wd{decay:g}-s{seed}", width, depth, decay, seed)
                    runs += found
                    rows += results_of(rng, found, metrics, inside=inside)
                    write_record(folder, found[0])
    runs += [failed(f"{name}failed-{number}", why) for number in range(failures)]
    RUNS.write(folder / "runs.csv", runs)
    RESULTS.write(folder / "results.csv", rows)
    return folder


def one_run(rng: np.random.Generator, name: str, width: int, depth: int, decay: float, seed: int) -> list[Run]:
    luck = rng.standard_normal()
    checkpoints = []
    for epoch in EPOCHS:
        progress = np.log2(1 + epoch) if epoch else -2.0
        size = np.log2(width / 32) + 0.6 * np.log2(depth)
        loss = 6.9 if epoch == 0 else 3.2 - 0.3 * size - 0.25 * progress - 0.03 * (decay > 0) + 0.02 * luck
        checkpoints.append(blank(name) | {
            "checkpoint": f"{epoch:g}", "family": "gpt-neo", "width": width, "depth": depth, "epochs": EPOCHS[-1],
            "epoch": epoch, "weight_decay": decay, "lr": 1e-3, "seed": seed, "tokens": int(epoch * 1e6),
            "parameters": 1024 * width + depth * 12 * width**2, "train_loss": loss - 0.05 * progress, "val_loss": loss,
            "val_accuracy": 0.6 - loss / 20, "perplexity": float(np.exp(loss)), "seconds": 60.0, "why": None,
            "luck": f"{luck:.3f}", "tied": "true",
        })  # fmt: skip
    for run in checkpoints:
        run["_luck"] = luck
    return checkpoints


def blank(name: str) -> Run:
    return dict.fromkeys(RUNS.columns) | {"run": name}


def failed(name: str, why: str) -> Run:
    return blank(name) | {"checkpoint": "1", "family": "gpt-neo", "width": 64, "depth": 2, "epochs": 4.0, "epoch": 1.0,
                          "weight_decay": 0.0, "lr": 1e-3, "seed": 0, "tied": "true", "why": why}  # fmt: skip


def results_of(rng: np.random.Generator, found: list[Run], metrics: tuple[str, ...], *, inside: bool) -> list[Row]:
    rows = []
    for run in found:
        luck = run.pop("_luck")
        run.pop("luck")
        for metric in metrics:
            start, factor = METRICS[metric]
            steps = np.log2(run["width"] / 32) + 0.5 * np.log2(run["depth"]) + 0.8 * np.log2(1 + run["epoch"])
            steps += 0.4 * (run["weight_decay"] > 0) - 0.1 * luck + 0.1 * rng.standard_normal()
            value = start * factor**steps
            null = start * factor**-1.5
            value = null * (1 + 0.02 * rng.standard_normal()) if run["epoch"] == 0 else value
            rows.append(row_of(run, metric, value, null=null))
            if metric == "cdnv":
                rows.append(row_of(run, metric, 1.1 * value, null=null, split="validation"))
            if inside and run["epoch"] == EPOCHS[-1] and metric != "agreement":
                blocks = range(1, run["depth"] + 1)
                rows += [row_of(run, metric, value * factor ** (b - run["depth"] - 1), layer=str(b)) for b in blocks]
                bins = ("1-9", "10-99", "100-999", "1000-9999")
                rows += [row_of(run, metric, value * factor ** (i - 1.5), bin=b) for i, b in enumerate(bins)]
    return rows


def row_of(run: Run, metric: str, value: float, *, split: Any = "train", layer: str = "last", bin: str = "all",
           null: float | None = None) -> Row:  # fmt: skip
    spread = 0.03 * abs(value)
    return Row(
        run=run["run"], checkpoint=run["checkpoint"], split=split, layer=layer, bin=bin, metric=metric,
        value=float(value), null=null, low=float(value - spread), high=float(value + spread), classes=900,
        tokens=100_000, min_count=1, left_out=0,
    )  # fmt: skip


def write_record(folder: Path, run: Run) -> None:
    settings = {name: run[name] for name in ("family", "width", "depth", "weight_decay", "lr", "seed")}
    record = RunRecord(
        hash="0123abcd", settings=settings,
        corpus=TrainedOn(path="corpora/storyworld", hash="b252e4f086f24671", vocabulary=1024, block=128),
        plan=PlannedRun(batch=8, blocks=80, steps=10, warmup=0, tokens=10_160, checkpoints={"0": 0, "1": 10}),
        model=BuiltModel(parameters=run["parameters"], config={}),
        provenance=Provenance(
            started="2026-01-01T00:00:00", versions={"collapselab": "0.1.0", "torch": "2.13.0"}, python="3.11.7",
            commit="2ed717d", machine="Linux", device="cpu", precision="fp32", processes=1, threads=1,
        ),
    )  # fmt: skip
    path = folder / run["run"] / "run.json"
    if "/" in run["run"] or "<" in run["run"]:
        return
    record.write(path)


if __name__ == "__main__":
    write_suite(Path(sys.argv[1]))
