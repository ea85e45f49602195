"""The numbers of the findings of README.md and docs/results, from the packed tables, in the order of each page.

    python docs/claim_list.py           compare every page with its numbers
    python docs/claim_list.py cause.md  one page

To add a finding, write its sentence on the page and a function here that returns its numbers in their order.
"""

import sys
from collections.abc import Mapping

import numpy as np
import pandas as pd
from claims import (
    CLAIMS,
    Interval,
    Numbers,
    at,
    checkpoints,
    claim,
    contexts,
    differences,
    down,
    from_to,
    interval,
    last,
    mismatches,
    moved,
    partial_r,
    r,
    r_interval,
    ratio,
    tokens_per_parameter,
    up,
    where,
)  # fmt: skip

from collapselab.analysis.paired import at_equal_training_loss


def arm(name: str) -> pd.DataFrame:
    return last("cause", intervene=name)


def effect(name: str, column: str = "val_loss", control: str = "none") -> Interval:
    return interval(differences(arm(name), arm(control), column))


def mean_effects(*, without: str = "") -> pd.DataFrame:
    """Mean change of every numeric column, a row for each arm and sham."""
    rows = last("cause").assign(log_k2=lambda table: np.log(table["cdnv_k2"]))
    means = rows.drop(columns="checkpoint").groupby("intervene").mean(numeric_only=True)
    return (means - means.loc["none"]).drop(index=["none", *([without] if without else [])])


@claim("cause.md")
def cause_direction() -> Numbers:
    for metric in ("cdnv", "vci"):
        down(effect("within:+0.1", metric))
    toward = [down(effect("within:+0.1", metric)) for metric in ("cdnv_log", "within_share")]
    return *ratio(arm("within:+0.1"), arm("none"), "cdnv_k2"), *toward[0], *toward[1]


@claim("cause.md")
def cause_loss() -> Numbers:
    steps, seeds = arm("none")["steps"].iloc[0], len(arm("none"))
    return *up(effect("within:+0.1")), steps, seeds, *up(effect("within:+0.1:sham"))


@claim("cause.md")
def cause_relations() -> Numbers:
    every, most = mean_effects(), mean_effects(without="flat:+0.1")
    loss = [
        r(rows[metric], rows["val_loss"]) for rows, metric in
        [(every, "log_k2"), (most, "log_k2"), (every, "cdnv_log"), (most, "cdnv_log")]
    ]  # fmt: skip
    return len(every), *loss, r(every["cdnv_log"], every["logdist_std"])


@claim("cause.md")
def cause_faster() -> Numbers:
    for metric in ("cdnv_k2", "cdnv", "cdnv_log", "within_share", "vci"):
        up(effect("isotropy:+0.1", metric))
    return (
        *down(effect("isotropy:+0.1")), *down(effect("uniform_means:+0.1")),
        *down(effect("uniform_means:+0.1", control="uniform_means:+0.1:sham")),
    )  # fmt: skip


@claim("cause.md")
def cause_speed() -> Numbers:
    every = mean_effects()
    return arm("none")["epoch"].iloc[0], r(every["train_loss"], every["val_loss"])


def apart(name: str, suite: str = "separable") -> pd.DataFrame:
    return last(suite, intervene=name)


def apart_effect(name: str, column: str = "val_loss", suite: str = "separable") -> Interval:
    return interval(differences(apart(name, suite), apart("none", suite), column))


def includes_zero(effect: Interval) -> Interval:
    """The effect, whose interval must include 0."""
    if not effect[1] < 0 < effect[2]:
        raise ValueError(f"shown to differ from 0: {effect}")
    return effect


def in_deviations(suite: str) -> pd.DataFrame:
    """Mean change of every numeric column in standard deviations of the control, a row for each arm."""
    rows = last(suite).drop(columns="checkpoint")
    control = rows[rows["intervene"] == "none"]
    means = rows.groupby("intervene").mean(numeric_only=True)
    return ((means - means.loc["none"]) / control.std(numeric_only=True)).drop(index="none")


@claim("separable.md")
def separable_nc1() -> Numbers:
    name = "uniform_means:+0.145 within:+0.2"
    toward = [number for metric in ("cdnv_log", "within_share") for number in down(apart_effect(name, metric))]
    away = ratio(apart(name), apart("none"), "cdnv_k2")
    return *includes_zero(apart_effect(name, "logdist_std")), *toward, *away, *up(apart_effect(name))


@claim("separable.md")
def separable_gnc2() -> Numbers:
    name = "uniform_means:+0.185 within:+0.2"
    toward = [number for metric in ("logdist_std", "within_share") for number in down(apart_effect(name, metric))]
    away = ratio(apart(name), apart("none"), "cdnv_k2")
    return *includes_zero(apart_effect(name, "cdnv_log")), *toward, *away, *up(apart_effect(name))


@claim("separable.md")
def separable_share() -> Numbers:
    name = "uniform_means:+0.145 within:+0.1"
    return (
        *apart_effect(name, "within_share"), *down(apart_effect(name, "logdist_std")),
        *ratio(apart(name), apart("none"), "cdnv_k2"), *up(apart_effect(name, "cdnv_log")), *up(apart_effect(name)),
    )  # fmt: skip


@claim("separable.md")
def separable_speed() -> Numbers:
    means = last("separable").drop(columns="checkpoint").groupby("intervene").mean(numeric_only=True)
    effects = (means - means.loc["none"]).drop(index="none")
    return apart("none")["epoch"].iloc[0], len(effects), r(effects["train_loss"], effects["val_loss"])


def at_rate(name: str, rate: float) -> Interval:
    arm, control = (last("rate-pilot", intervene=one, lr=rate) for one in (name, "none"))
    return interval(differences(arm, control, "val_loss"))


RATES = (1.5e-3, 3e-3, 6e-3, 1.2e-2)


@claim("rate-pilot.md")
def rates_within() -> Numbers:
    return tuple(number for rate in RATES for number in (*up(at_rate("within:+0.1", rate)), rate))


@claim("rate-pilot.md")
def rates_spread() -> Numbers:
    effects = [at_rate("uniform_means:+0.1", rate) for rate in RATES]
    return *down(effects[0]), RATES[0], *(number for effect in effects[1:] for number in includes_zero(effect))


@claim("rate-pilot.md")
def rates_best() -> Numbers:
    means = last("rate-pilot").groupby(["intervene", "lr"])["val_loss"].mean().unstack()
    if set(means.idxmin(axis=1)) != {3e-3}:
        raise ValueError(f"expected 0.003 to be best for every arm, got {means.idxmin(axis=1).to_dict()}")
    return (0.003,)


def confirmed(name: str, column: str = "val_loss") -> Interval:
    return interval(differences(last("rate-confirm", intervene=name), last("rate-confirm", intervene="none"), column))


@claim("rate-confirm.md")
def confirm_loss() -> Numbers:
    names = ("uniform_means:+0.1", "isotropy:+0.1")
    lower = [number for name in names for number in (*down(confirmed(name)), *down(effect(name)))]
    return *up(confirmed("within:+0.1")), *up(effect("within:+0.1")), *lower


@claim("rate-confirm.md")
def confirm_undecided() -> Numbers:
    return includes_zero(confirmed("within:-0.1"))


@claim("rate-confirm.md")
def confirm_metrics() -> Numbers:
    name = "within:+0.1"
    arm, control = (last("rate-confirm", intervene=one) for one in (name, "none"))
    return *ratio(arm, control, "cdnv_k2"), *down(confirmed(name, "cdnv_log"))


@claim("rate-confirm.md")
def confirm_gap() -> Numbers:
    arms = set(last("rate-confirm")["intervene"]) - {"none"}
    widest = max(max(map(abs, confirmed(str(name), "gap"))) for name in arms)
    if not 0.006 < widest < 0.007:
        raise ValueError(f"expected intervals within 0.007, got {widest}")
    return (0.007,)


def gap_effect(name: str, column: str = "gap", suite: str = "gap-100") -> Interval:
    return interval(differences(last(suite, intervene=name), last(suite, intervene="none"), column))


def gap_at_equal_loss(name: str, level: float | None = None, suite: str = "gap-100") -> Interval:
    """Arm minus control in validation loss at the final training loss of the slower run, or at this training loss."""
    found = []
    for seed in range(8):
        arm, control = (at(suite, intervene=one, seed=seed).sort_values("tokens") for one in (name, "none"))
        if level is None:
            found.append(at_equal_training_loss(arm, control))
        else:
            left, right = (np.interp(-level, -run["train_loss"], run["val_loss"]) for run in (arm, control))
            found.append(float(left - right))
    if None in found:
        raise ValueError(f"{name}: no checkpoint near the level")
    return interval(value for value in found if value is not None)


@claim("gap-100.md")
def gap_overfits() -> Numbers:
    control = at("gap-100", intervene="none").groupby("checkpoint")[["epoch", "gap", "val_loss"]].mean()
    best, end = control.iloc[int(control["val_loss"].argmin())], control.iloc[int(control["epoch"].argmax())]
    return end["epoch"], end["gap"], best["val_loss"], best["epoch"], end["val_loss"]


@claim("gap-100.md")
def gap_within() -> Numbers:
    name = "within:+0.1"
    return *down(gap_effect(name)), *up(gap_effect(name, "train_loss")), *up(gap_at_equal_loss(name))


@claim("gap-100.md")
def gap_others() -> Numbers:
    spread, isotropy = "uniform_means:-0.1", "isotropy:+0.1"
    return *down(gap_effect(spread)), *up(gap_at_equal_loss(spread)), *down(gap_at_equal_loss(isotropy))


@claim("gap-100.md")
def gap_near_the_best() -> Numbers:
    names = ("within:+0.1", "uniform_means:-0.1", "isotropy:+0.1")
    return 3.5, *(number for name in names for number in gap_at_equal_loss(name, 3.5))


@claim("gap-100.md")
def gap_best_loss() -> Numbers:
    arms = {str(name) for name in last("gap-100")["intervene"]} - {"none"}
    effects = {name: gap_effect(name, "best_val_loss") for name in arms}
    low, high = min(effects, key=lambda name: effects[name][0]), max(effects, key=lambda name: effects[name][0])
    if (low, high) != ("within:+0.1", "within:-0.1"):
        raise ValueError(f"expected within:+0.1 to be lowest and within:-0.1 highest, got {low} and {high}")
    return *includes_zero(effects[low]), *up(effects[high])


@claim("gap-100.md")
def gap_sham() -> Numbers:
    return tuple(includes_zero(gap_effect("within:+0.1:sham")))


SMALL_GAP = "gap-400"


@claim("gap-400.md")
def small_gap_end() -> Numbers:
    control = at(SMALL_GAP, intervene="none").groupby("checkpoint")[["epoch", "gap", "val_loss"]].mean()
    best, end = control.iloc[int(control["val_loss"].argmin())], control.iloc[int(control["epoch"].argmax())]
    return end["epoch"], end["gap"], best["val_loss"], best["epoch"], end["val_loss"]


@claim("gap-400.md")
def small_gap_within() -> Numbers:
    name = "within:+0.1"
    return (
        *down(gap_effect(name, suite=SMALL_GAP)), *up(gap_effect(name, "train_loss", SMALL_GAP)),
        *down(gap_at_equal_loss(name, suite=SMALL_GAP)), *includes_zero(gap_effect(f"{name}:sham", suite=SMALL_GAP)),
    )  # fmt: skip


@claim("gap-400.md")
def small_gap_no_better() -> Numbers:
    best, accuracy = (gap_effect("within:+0.1", column, SMALL_GAP) for column in ("best_val_loss", "val_accuracy"))
    return *includes_zero(best), *down(accuracy)


@claim("gap-400.md")
def small_gap_others() -> Numbers:
    names = ("uniform_means:+0.1", "within:-0.1", "uniform_means:-0.1", "isotropy:+0.1")
    combined = {name for name in last(SMALL_GAP)["intervene"] if " " in name}
    for name in combined:
        up(gap_at_equal_loss(name, suite=SMALL_GAP))
    if len(names) + len(combined) + 3 != last(SMALL_GAP)["intervene"].nunique():
        raise ValueError("expected these arms, within:+0.1, its sham and the control to be all")
    return tuple(number for name in names for number in up(gap_at_equal_loss(name, suite=SMALL_GAP)))


@claim("gap-400.md")
def small_gap_reversed() -> Numbers:
    up(gap_at_equal_loss("isotropy:+0.1", suite=SMALL_GAP))
    epochs = at("gap-100", intervene="none")["epoch"].max()
    return epochs, 100, *up(gap_at_equal_loss("within:+0.1")), *down(gap_at_equal_loss("isotropy:+0.1"))


@claim("gap-400.md")
def small_gap_metrics() -> Numbers:
    name = "within:+0.1"
    toward = [down(gap_effect(name, metric, SMALL_GAP)) for metric in ("cdnv_log", "within_share")]
    away = ratio(last(SMALL_GAP, intervene=name), last(SMALL_GAP, intervene="none"), "cdnv_k2")
    return *toward[0], *toward[1], *away


@claim("separable-pilot.md")
def pilot_nc1() -> Numbers:
    pairs = in_deviations("separable-pilot")
    kept = pairs.index[pairs["logdist_std"].abs() < 1]
    if list(kept) != ["uniform_means:+0.03 within:+0.05"]:
        raise ValueError(f"expected one pair to hold logdist_std, got {list(kept)}")
    return len(pairs), len(kept), *down(apart_effect(kept[0], "within_share", "separable-pilot"))


@claim("separable-pilot.md")
def pilot_gnc2() -> Numbers:
    pairs = in_deviations("separable-pilot")[["within_share", "cdnv_log"]]
    farther = pairs.abs().max(axis=1)
    nearest = str(farther.idxmin())
    if nearest != "uniform_means:+0.05 within:+0.05":
        raise ValueError(f"another pair is nearest: {nearest}")
    return int((farther < 2).sum()), *(float(value) for value in pairs.loc[nearest].to_numpy())


@claim("separable-pilot.md")
def pilot_doses() -> Numbers:
    names = ("uniform_means:+0.05 within:+0.2", "uniform_means:+0.2 within:+0.2", "none")
    return [
        float(apart(name, "separable-pilot")[metric].mean())
        for metric in ("logdist_std", "within_share")
        for name in names
    ]


def pilot_2(name: str, *metrics: str) -> list[float]:
    return [float(in_deviations("separable-pilot-2")[metric][name]) for metric in metrics]


@claim("separable-pilot-2.md")
def pilot_2_nc1() -> Numbers:
    name = "uniform_means:+0.15 within:+0.2"
    return *pilot_2(name, "logdist_std"), *down(apart_effect(name, "within_share", "separable-pilot-2"))


@claim("separable-pilot-2.md")
def pilot_2_log() -> Numbers:
    return pilot_2("uniform_means:+0.19 within:+0.2", "cdnv_log", "within_share")


@claim("separable-pilot-2.md")
def pilot_2_share() -> Numbers:
    return pilot_2("uniform_means:+0.145 within:+0.1", "within_share", "cdnv_log")


def seeds_relations(*metrics: str) -> list[float]:
    rows = last("seeds").assign(log_k2=lambda table: np.log(table["cdnv_k2"]))
    return [number for metric in metrics for number in r_interval(rows[metric], rows["val_loss"])]


@claim("seeds.md")
def seeds_nc1() -> Numbers:
    return seeds_relations("log_k2", "within_share", "cdnv_log")


@claim("seeds.md")
def seeds_learned() -> Numbers:
    rows = last("seeds").assign(log_k2=lambda table: np.log(table["cdnv_k2"]))
    loss, train = rows["val_loss"], rows["train_loss"]
    partial = [partial_r(rows[metric], loss, train) for metric in ("log_k2", "agreement", "within_share")]
    return r(train, loss), *partial


@claim("seeds.md")
def seeds_others() -> Numbers:
    return seeds_relations("flatness", "agreement", "duality_cos_mean")


def widths() -> tuple[pd.DataFrame, pd.DataFrame]:
    return last("scale", width=16), last("scale", width=128)


@claim("scale.md")
def scale_nc1() -> Numbers:
    narrow, wide = widths()
    on = ("depth", "seed")
    moved(narrow, wide, rise=("within_share", "vci", "cdnv_log"), on=on)
    falls = [ratio(narrow, wide, metric, on) for metric in ("cdnv_k2", "directional_cdnv", "cdnv")]
    rises = from_to(narrow, wide, "within_share", "vci", "cdnv_log")
    return 16, 128, *falls[0], *falls[1], *falls[2], *rises


@claim("scale.md")
def scale_loss() -> Numbers:
    rows = last("scale")
    return *from_to(*widths(), "val_loss", "agreement"), len(rows), r(rows["agreement"], rows["val_loss"])


@claim("scale.md")
def scale_training() -> Numbers:
    shapes = last("scale").groupby(["width", "depth"])
    tokens = tokens_per_parameter(last("scale"))
    losses = shapes["val_loss"].mean()[128]
    return tokens.max(), tokens.min(), *losses


NC1 = ("cdnv_k2", "cdnv", "cdnv_log", "within_share", "vci", "directional_cdnv")


@claim("initialisation.md")
def initial() -> Numbers:
    start, null = (where(checkpoints("initialisation", column=column), tokens=0) for column in ("value", "null"))
    for metric in NC1:
        down(interval(differences(start, null, metric)))
    names = ("cdnv_k2", "cdnv_log", "ncc_accuracy", "duality_cos_mean", "agreement")
    values = dict(zip(names, np.reshape(from_to(start, null, *names), (-1, 2)), strict=True))
    values["ncc_accuracy"] = 100 * values["ncc_accuracy"]
    return len(NC1), *(number for name in names for number in values[name])


@claim("initialisation.md")
def initial_later() -> Numbers:
    before, after = at("initialisation", tokens=147_320), at("initialisation", tokens=609_600)
    moved(before, after, rise=("cdnv_log", "within_share"), fall=("cdnv_k2", "cdnv", "vci", "directional_cdnv"))
    metrics = from_to(before, after, "cdnv_k2", "cdnv", "vci", "directional_cdnv")
    return (
        147_320, 609_600, *from_to(before, after, "val_loss"), *metrics,
        *from_to(before, after, "cdnv_log", "within_share"), len(before),
    )  # fmt: skip


@claim("initialisation.md")
def initial_rising() -> Numbers:
    before, after = at("initialisation", tokens=147_320), at("initialisation", tokens=609_600)
    moved(before, after, rise=("agreement", "duality_cos_mean"))
    early, dip = at("initialisation", tokens=17_272), at("initialisation", tokens=35_560)
    falls = int((differences(dip, early, "duality_cos_mean") < 0).sum())
    changes = from_to(before, after, "agreement", "duality_cos_mean")
    return len(before), *changes, *from_to(early, dip, "duality_cos_mean"), falls


PLAIN: Mapping[str, float] = {"weight_decay": 0.0005, "dropout": 0.0, "label_smoothing": 0.0}
DROPOUT, SMOOTHING, DECAY = {**PLAIN, "dropout": 0.2}, {**PLAIN, "label_smoothing": 0.2}, {**PLAIN, "weight_decay": 0.1}


@claim("training.md")
def training_metrics() -> Numbers:
    before, after = at("training", **PLAIN, checkpoint=3), at("training", **PLAIN, checkpoint=12)
    moved(before, after, rise=("cdnv", "cdnv_log", "within_share", "vci"), fall=("cdnv_k2", "directional_cdnv"))
    columns = ("val_loss", "cdnv_k2", "directional_cdnv", "cdnv_log", "within_share")
    return 3, 12, *from_to(before, after, *columns), len(before)


@claim("training.md")
def training_regularisers() -> Numbers:
    plain, dropout, smoothing = (at("training", **setting, checkpoint=12) for setting in (PLAIN, DROPOUT, SMOOTHING))
    moved(plain, dropout, rise=["cdnv_k2"], fall=["cdnv_log"])
    moved(plain, smoothing, rise=["cdnv_log"], fall=["directional_cdnv"])
    return (
        12, *from_to(dropout, plain, "cdnv_log", "cdnv_k2"), *from_to(smoothing, plain, "cdnv_log", "directional_cdnv")
    )  # fmt: skip


def by_regulariser(suite: str, checkpoint: int, *columns: str) -> list[float]:
    ends = [at(suite, **setting, checkpoint=checkpoint) for setting in (PLAIN, DECAY, SMOOTHING, DROPOUT)]
    return [float(end[column].mean()) for column in columns for end in ends]


@claim("training.md")
def training_end() -> Numbers:
    return by_regulariser("training", 12, "val_loss", "agreement")


def weak_decay(epoch: int) -> pd.DataFrame:
    return at("overfitting", **PLAIN, checkpoint=epoch)


@claim("overfitting.md")
def overfitting_loss() -> Numbers:
    rows = at("overfitting", **PLAIN)
    best = rows.groupby("checkpoint")["val_loss"].mean().idxmin()
    moved(weak_decay(6), weak_decay(40), rise=["val_loss", "gap", "ncc_accuracy"], fall=["val_accuracy"])
    lowest_loss, end, *others = from_to(
        weak_decay(6), weak_decay(40), "val_loss", "gap", "val_accuracy", "ncc_accuracy"
    )
    return lowest_loss, str(best), end, 40, *others


@claim("overfitting.md")
def overfitting_metrics() -> Numbers:
    moved(weak_decay(6), weak_decay(40), rise=["agreement", "duality_cos_mean"], fall=[*NC1, "logdist_std"])
    moved(weak_decay(3), weak_decay(40), rise=["within_share"])
    numbers = from_to(weak_decay(6), weak_decay(40), "agreement", "duality_cos_mean", "logdist_std")
    return 6, 40, len(NC1), *numbers, 3, *from_to(weak_decay(3), weak_decay(40), "within_share")


@claim("overfitting.md")
def overfitting_validation() -> Numbers:
    names = [f"{metric} (validation)" for metric in ("cdnv_log", "within_share", "cdnv_k2", "directional_cdnv")]
    return 6, 40, *from_to(weak_decay(6), weak_decay(40), *names)


@claim("overfitting.md")
def overfitting_end() -> Numbers:
    return by_regulariser("overfitting", 40, "val_loss", "agreement")


def lowest(rows: pd.DataFrame, metric: str, by: str) -> tuple[str, float]:
    means = rows.groupby(by)[metric].mean()
    return str(means.idxmin()), float(means.min())


TEXTS = {
    "code": "Python code",
    "imdb": "IMDB",
    "shakespeare": "Shakespeare",
    "storyworld": "storyworld",
    "tinystories": "TinyStories",
}


@claim("text.md")
def text_order() -> Numbers:
    winners = {
        metric: lowest(last("text"), metric, "corpus") for metric in ("cdnv_log", "within_share", "cdnv_k2", "vci")
    }
    if winners["cdnv_log"][0] != winners["within_share"][0] or winners["cdnv_k2"][0] != winners["vci"][0]:
        raise ValueError(f"the metrics are lowest on other texts: {winners}")
    log, share, k2, vci = (winners[metric][1] for metric in ("cdnv_log", "within_share", "cdnv_k2", "vci"))
    return (
        last("text")["corpus"].nunique(),
        TEXTS[winners["cdnv_log"][0]],
        log,
        share,
        TEXTS[winners["cdnv_k2"][0]],
        k2,
        vci,
    )


def by_text(metric: str, *names: str) -> list[float]:
    return [float(last("text", corpus=name)[metric].mean()) for name in names]


@claim("text.md")
def text_agreement() -> Numbers:
    spread = last("text").groupby("corpus")["agreement"].std()
    return (
        *by_text("agreement", "tinystories", "storyworld", "shakespeare", "code"), spread["code"],
        *by_text("agreement", "imdb"), spread["imdb"],
    )  # fmt: skip


@claim("text.md")
def text_alignment() -> Numbers:
    groups = last("text").groupby("corpus")["duality_cos_mean"]
    means = groups.mean()
    return means.min(), TEXTS[str(means.idxmin())], means.max(), TEXTS[str(means.idxmax())], groups.std().max()


SMOL, STORIES = "SmolLM2-135M-Instruct.Q4_1.gguf", "stories260K"


def layers(run: str, metric: str) -> "pd.Series[float]":
    """The metric after each block, and `last` for the vector that enters the output layer."""
    blocks = int(where(checkpoints("real"), run=run)["depth"].iloc[0])
    names = [*(str(block) for block in range(1, blocks + 1)), "last"]
    return pd.Series({name: where(checkpoints("real", layer=name), run=run)[metric].iloc[0] for name in names})


@claim("real.md")
def real_agreement() -> Numbers:
    large, small = layers(SMOL, "agreement"), layers(STORIES, "agreement")
    peak = int(str(large.idxmax()))
    return (
        peak, len(large) - 1, large.max(), peak - 1, large[str(peak - 1)], peak + 1, large[str(peak + 1)],
        str(small.idxmax()), len(small) - 1, small.max(),
    )  # fmt: skip


@claim("real.md")
def real_norm() -> Numbers:
    large, small = layers(SMOL, "agreement"), layers(STORIES, "agreement")
    return large["30"], large["last"], small["5"], small["last"]


@claim("real.md")
def real_nc1() -> Numbers:
    numbers: list[float | str] = []
    for metric in ("cdnv_log", "cdnv_k2", "scatter_ratio"):
        values = layers(SMOL, metric)
        numbers += [values.min()] if values.idxmin() == "last" else [str(values.idxmin()), values.min()]
    for metric in ("cdnv_k2", "cdnv", "cdnv_log", "within_share"):
        if not layers(STORIES, metric).is_monotonic_decreasing:
            raise ValueError(f"{metric} of stories260K does not fall from block to block")
    return numbers


def context_shares(corpus: str, n: int, *metrics: str) -> list[float]:
    rows = where(contexts(), corpus=corpus, n=n)
    ends = where(rows, tokens=0), where(rows, tokens=rows["tokens"].max())
    return from_to(*ends, *metrics)


@claim("contexts.md")
def contexts_markov() -> Numbers:
    between = context_shares("markov", 2, "token_between_contexts")
    within = context_shares("markov", 2, "token_within_context")
    return [number for end in (1, 0) for number in (between[end] + within[end], between[end], within[end])]


@claim("contexts.md")
def contexts_stories() -> Numbers:
    metrics, corpora = ("token_between_contexts", "token_within_context"), ("tinystories", "storyworld")
    return [number for metric in metrics for corpus in corpora for number in context_shares(corpus, 1, metric)]


@claim("contexts.md")
def contexts_order() -> Numbers:
    return [context_shares("markov", n, "context_within")[1] for n in (1, 2, 3, 4)]


def tied() -> tuple[pd.DataFrame, pd.DataFrame]:
    return last("families", tied=True), last("families", tied=False)


@claim("families.md")
def families_loss() -> Numbers:
    on = ("family", "seed")
    moved(*tied(), rise=["duality_cos_mean"], fall=["val_loss"], on=on)
    gains = -differences(tied()[1], tied()[0], "val_loss", on)
    by_family = gains.groupby("family").mean()
    cosines = [rows.groupby("family")["duality_cos_mean"].mean() for rows in tied()]
    ends = [end for means in cosines for end in (means.min(), means.max())]
    return len(gains), by_family.min(), by_family.idxmin(), by_family.max(), by_family.idxmax(), *ends


@claim("families.md")
def families_nc1() -> Numbers:
    on = ("family", "seed")
    moved(*tied(), rise=("cdnv_log", "within_share"), fall=("vci", "directional_cdnv"), on=on)
    return len(tied()[0]), int((differences(tied()[1], tied()[0], "cdnv_k2", on) > 0).sum())


@claim("families.md")
def families_agreement() -> Numbers:
    means = tied()[1].groupby("family")[["agreement", "val_loss"]].mean()
    return len(means), r(means["agreement"], means["val_loss"])


def optimiser(name: str) -> pd.DataFrame:
    """An arm of the suite `coupling`: the share of the decay in the gradient, or `coupled-adam`."""
    if name == "coupled-adam":
        return last("coupling", optimizer=name)
    return last("coupling", optimizer="adamw", coupling=float(name))


def coupled(name: str, column: str) -> Interval:
    return interval(differences(optimiser(name), optimiser("0"), column))


@claim("coupling.md")
def coupling_nc1() -> Numbers:
    for metric in ("cdnv", "vci"):
        down(coupled("1", metric))
    away = [ratio(optimiser("1"), optimiser("0"), metric) for metric in ("cdnv_k2", "directional_cdnv")]
    toward = [down(coupled("1", metric)) for metric in ("cdnv_log", "within_share")]
    return *away[0], *away[1], *toward[0], *toward[1]


@claim("coupling.md")
def coupling_others() -> Numbers:
    return (
        *up(coupled("1", "duality_cos_mean")), *down(coupled("1", "agreement")), *up(coupled("1", "logdist_std"))
    )  # fmt: skip


@claim("coupling.md")
def coupling_loss() -> Numbers:
    names = ("1", "0.5", "coupled-adam")
    clipped = [100 * float(optimiser(name)["clipped"].mean()) for name in (*names, "0")]
    return *(number for name in names for number in up(coupled(name, "val_loss"))), *clipped


TINYSTORIES_BYTES_PER_TOKEN = 755_216 / 243_299
"""Of the validation split with `bpe:1024`, from corpus.json and the text; the tables do not have it."""


@claim("index.md")
def how_far_trained() -> Numbers:
    control, middle = arm("none"), at("cause", intervene="none", epoch=checkpoints("cause")["epoch"].min())
    (loss, end), (tokens, all_tokens) = from_to(middle, control, "val_loss"), from_to(middle, control, "tokens")
    slope = (loss - end) / np.log(all_tokens / tokens)
    bits = from_to(control, last("text", corpus="tinystories"), "val_loss")[1] / np.log(2) / TINYSTORIES_BYTES_PER_TOKEN
    stories = where(checkpoints("real"), run=STORIES).iloc[0]
    parameters = control["parameters"].iloc[0]
    return (
        parameters, int(all_tokens), all_tokens / parameters, control["epoch"].iloc[0], slope, bits,
        stories["parameters"], stories["bits_per_byte"],
    )  # fmt: skip


def core_arm(suite: str, name: str) -> pd.DataFrame:
    return last(suite, intervene=name)


def core_effect(suite: str, name: str, column: str = "val_loss") -> Interval:
    return interval(differences(core_arm(suite, name), core_arm(suite, "none"), column))


def includes_zero_core(suite: str, name: str) -> Interval:
    return includes_zero(core_effect(suite, name))


def core_losses(suite: str) -> Numbers:
    names = ("within:+0.1", "isotropy:+0.1")
    return *(number for name in names for number in includes_zero_core(suite, name)), len(core_arm(suite, "none"))


def core_spread(suite: str) -> Numbers:
    return core_arm(suite, "none")["val_loss"].std(), arm("none")["val_loss"].std()


def core_speed(suite: str) -> Numbers:
    means = last(suite).drop(columns="checkpoint").groupby("intervene").mean(numeric_only=True)
    effects = (means - means.loc["none"]).drop(index="none")
    return core_arm(suite, "none")["epoch"].iloc[0], len(effects), r(effects["train_loss"], effects["val_loss"])


@claim("imdb.md")
def imdb_losses() -> Numbers:
    return core_losses("imdb")


@claim("imdb.md")
def imdb_uniform() -> Numbers:
    return *down(core_effect("imdb", "uniform_means:+0.1")), *down(effect("uniform_means:+0.1"))


@claim("imdb.md")
def imdb_nc1() -> Numbers:
    factor = ratio(core_arm("imdb", "within:+0.1"), core_arm("imdb", "none"), "cdnv_k2")
    return *factor, *down(core_effect("imdb", "within:+0.1", "cdnv_log"))


@claim("imdb.md")
def imdb_spread() -> Numbers:
    return core_spread("imdb")


@claim("imdb.md")
def imdb_speed() -> Numbers:
    return core_speed("imdb")


@claim("code.md")
def code_losses() -> Numbers:
    return core_losses("code")


@claim("code.md")
def code_uniform() -> Numbers:
    changes = differences(core_arm("code", "uniform_means:+0.1"), core_arm("code", "none"), "val_loss")
    return *down(interval(changes)), int((changes < 0).sum()), len(changes)


@claim("code.md")
def code_spread() -> Numbers:
    return core_spread("code")


@claim("code.md")
def code_speed() -> Numbers:
    return core_speed("code")


@claim("README.md")
def readme_cause() -> Numbers:
    seeds, steps = len(arm("none")), arm("none")["steps"].iloc[0]
    every = mean_effects()
    cause_direction()  # it checks the other NC1 metrics
    return (
        *up(effect("within:+0.1")), steps, seeds, *up(effect("within:+0.1:sham")),
        *ratio(arm("within:+0.1"), arm("none"), "cdnv_k2"), *down(effect("within:+0.1", "cdnv_log")),
        len(every), r(every["cdnv_log"], every["logdist_std"]), *up(confirmed("within:+0.1")),
    )  # fmt: skip


@claim("README.md")
def readme_texts() -> Numbers:
    effects = [includes_zero_core(suite, "within:+0.1") for suite in ("imdb", "code")]
    spreads = [core_spread(suite) for suite in ("imdb", "code")]
    return (
        len(core_arm("imdb", "none")), *effects[0], *effects[1], spreads[0][0], spreads[1][0], spreads[0][1],
    )  # fmt: skip


@claim("README.md")
def readme_nc1() -> Numbers:
    falls = [ratio(*widths(), metric, ("depth", "seed")) for metric in ("cdnv_k2", "directional_cdnv")]
    moved(*widths(), rise=("within_share", "vci", "cdnv_log"), on=("depth", "seed"))
    return 16, 128, *falls[0], *falls[1], len(widths()[0])


@claim("README.md")
def readme_seeds() -> Numbers:
    learned = list(seeds_learned())
    return len(last("seeds")), *seeds_relations("log_k2", "within_share"), *learned[:2], learned[3]


@claim("README.md")
def readme_overfitting() -> Numbers:
    overfitting_metrics()  # checks that all NC1 metrics fall
    best, end = weak_decay(6), weak_decay(40)
    loss = list(overfitting_loss())
    rises = [up(interval(differences(end, best, column))) for column in ("agreement", "val_loss", "gap")]
    agreement = float(end["agreement"].mean())
    return len(end), loss[1], loss[3], *rises[0], agreement, *rises[1], *rises[2], *loss[6:8]


@claim("README.md")
def readme_gap() -> Numbers:
    name, end = "within:+0.1", gap_overfits()
    return (
        400, small_gap_end()[0], len(last(SMALL_GAP, intervene=name)), *down(gap_effect(name, suite=SMALL_GAP)),
        *down(gap_at_equal_loss(name, suite=SMALL_GAP)), *includes_zero(gap_effect(name, "best_val_loss", SMALL_GAP)),
        100, end[0], *up(gap_at_equal_loss(name)),
    )  # fmt: skip


def nc1_directions() -> list[str]:
    """Rows of the table in index.md: how each NC1 metric moves in a contrast, if it does so in every pair."""
    first, end = ({**PLAIN, "checkpoint": epoch} for epoch in (3, 12))
    contrasts = {
        "width 16 → 128": (*widths(), ("depth", "seed")),
        "147,320 → 609,600 tokens": (
            at("initialisation", tokens=147_320),
            at("initialisation", tokens=609_600),
            ("seed",),
        ),
        "400 stories, epoch 3 → 12": (at("training", **first), at("training", **end), ("seed",)),
        "100 stories, epoch 3 → 6": (weak_decay(3), weak_decay(6), ("seed",)),
        "100 stories, epoch 6 → 40": (weak_decay(6), weak_decay(40), ("seed",)),
        "tied → untied embeddings": (*tied(), ("family", "seed")),
        "control → `within:+0.1`": (arm("none"), arm("within:+0.1"), ("seed",)),
        "control → `isotropy:+0.1`": (arm("none"), arm("isotropy:+0.1"), ("seed",)),
        "control → coupled decay": (optimiser("0"), optimiser("1"), ("seed",)),
    }
    return [
        f"|{label}|{'|'.join(direction(before, after, metric, on) for metric in NC1)}|"
        for label, (before, after, on) in contrasts.items()
    ]


def direction(before: pd.DataFrame, after: pd.DataFrame, metric: str, on: tuple[str, ...]) -> str:
    """`+` if the metric falls, toward collapse, in every pair, and `−` if it rises in every pair."""
    if metric not in before:
        return "not measured"
    changes = differences(after, before, metric, on)
    return "+" if (changes < 0).all() else "−" if (changes > 0).all() else "mixed"


if __name__ == "__main__":
    for page in sys.argv[1:] or dict.fromkeys(page for page, _ in CLAIMS):
        print(f"{page}: {'; '.join(mismatches(page)) or 'as the tables have it'}")
    print(*nc1_directions(), sep="\n")
