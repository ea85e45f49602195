"""The findings of README.md and docs/results, page by page, each with the function that recomputes its numbers.

    python docs/claim_list.py           print every claim as the tables give it
    python docs/claim_list.py cause.md  those of one page

To add a finding, write its sentence and function here, print it, and copy it into the page.
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
    moved,
    partial_r,
    r,
    r_interval,
    ratio,
    tokens_per_parameter,
    up,
    where,
)  # fmt: skip


def arm(name: str) -> pd.DataFrame:
    return last("cause", intervene=name)


def effect(name: str, column: str = "val_loss", control: str = "none") -> Interval:
    return interval(differences(arm(name), arm(control), column))


def mean_effects(*, without: str = "") -> pd.DataFrame:
    """Mean change of every numeric column, a row for each arm and sham."""
    rows = last("cause").assign(log_k2=lambda table: np.log(table["cdnv_k2"]))
    means = rows.drop(columns="checkpoint").groupby("intervene").mean(numeric_only=True)
    return (means - means.loc["none"]).drop(index=["none", *([without] if without else [])])


@claim(
    "cause.md",
    "`within:+0.1`, which was meant to increase NC1, moves `cdnv_k2`, the paper's NC1 metric, away from collapse (by a "
    "factor of {:.2f} [{:.2f}, {:.2f}]) and the other NC1 metrics of the table toward it (`cdnv_log` by {:.3f} "
    "[{:.3f}, {:.3f}], `within_share` by {:.3f} [{:.3f}, {:.3f}]).",
)
def cause_direction() -> Numbers:
    for metric in ("cdnv", "vci"):
        down(effect("within:+0.1", metric))
    toward = [down(effect("within:+0.1", metric)) for metric in ("cdnv_log", "within_share")]
    return *ratio(arm("within:+0.1"), arm("none"), "cdnv_k2"), *toward[0], *toward[1]


@claim(
    "cause.md",
    "Its validation loss is {:.3f} nats [{:.3f}, {:.3f}] above the control's after {} steps ({} paired seeds), and "
    "with permuted labels {:.3f} [{:.3f}, {:.3f}] above it.",
)
def cause_loss() -> Numbers:
    steps, seeds = arm("none")["steps"].iloc[0], len(arm("none"))
    return *up(effect("within:+0.1")), steps, seeds, *up(effect("within:+0.1:sham"))


@claim(
    "cause.md",
    "Over the {} arms and shams the change of the loss correlates with the change of log `cdnv_k2` (r {:+.2f}; "
    "without `flat:+0.1` {:+.2f}) and, with the opposite sign, of `cdnv_log` (r {:+.2f}; {:+.2f}); the changes of "
    "`cdnv_log` and `logdist_std` correlate with each other (r {:+.3f}), so these arms cannot tell NC1 from GNC2.",
)
def cause_relations() -> Numbers:
    every, most = mean_effects(), mean_effects(without="flat:+0.1")
    loss = [
        r(rows[metric], rows["val_loss"]) for rows, metric in
        [(every, "log_k2"), (most, "log_k2"), (every, "cdnv_log"), (most, "cdnv_log")]
    ]  # fmt: skip
    return len(every), *loss, r(every["cdnv_log"], every["logdist_std"])


@claim(
    "cause.md",
    "`isotropy:+0.1` lowers the loss by {:.3f} nats [{:.3f}, {:.3f}] and moves every NC1 metric of the table away "
    "from collapse; `uniform_means:+0.1` lowers it by {:.3f} [{:.3f}, {:.3f}], by {:.3f} [{:.3f}, {:.3f}] more than "
    "its sham.",
)
def cause_faster() -> Numbers:
    for metric in ("cdnv_k2", "cdnv", "cdnv_log", "within_share", "vci"):
        up(effect("isotropy:+0.1", metric))
    return (
        *down(effect("isotropy:+0.1")), *down(effect("uniform_means:+0.1")),
        *down(effect("uniform_means:+0.1", control="uniform_means:+0.1:sham")),
    )  # fmt: skip


@claim(
    "cause.md",
    "All of this is learning speed: the runs end at {:.3f} of an epoch, and the changes of training and validation "
    "loss agree over the arms (r {:.5f}).",
)
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


@claim(
    "separable.md",
    "`uniform_means:+0.145 within:+0.2` leaves `logdist_std` near the control's value (change {:+.4f} [{:+.4f}, "
    "{:+.4f}]), moves `cdnv_log` (by {:.3f} [{:.3f}, {:.3f}]) and `within_share` (by {:.3f} [{:.3f}, {:.3f}]) toward "
    "collapse and `cdnv_k2` away from it (by a factor of {:.2f} [{:.2f}, {:.2f}]), and raises the validation loss by "
    "{:.3f} nats [{:.3f}, {:.3f}].",
)
def separable_nc1() -> Numbers:
    name = "uniform_means:+0.145 within:+0.2"
    toward = [number for metric in ("cdnv_log", "within_share") for number in down(apart_effect(name, metric))]
    away = ratio(apart(name), apart("none"), "cdnv_k2")
    return *includes_zero(apart_effect(name, "logdist_std")), *toward, *away, *up(apart_effect(name))


@claim(
    "separable.md",
    "`uniform_means:+0.185 within:+0.2` leaves `cdnv_log` near the control's value ({:+.4f} [{:+.4f}, {:+.4f}]), moves "
    "`logdist_std` (by {:.4f} [{:.4f}, {:.4f}]) and `within_share` (by {:.3f} [{:.3f}, {:.3f}]) toward collapse and "
    "`cdnv_k2` away from it (by a factor of {:.2f} [{:.2f}, {:.2f}]), and raises the loss by {:.3f} nats [{:.3f}, "
    "{:.3f}].",
)
def separable_gnc2() -> Numbers:
    name = "uniform_means:+0.185 within:+0.2"
    toward = [number for metric in ("logdist_std", "within_share") for number in down(apart_effect(name, metric))]
    away = ratio(apart(name), apart("none"), "cdnv_k2")
    return *includes_zero(apart_effect(name, "cdnv_log")), *toward, *away, *up(apart_effect(name))


@claim(
    "separable.md",
    "`uniform_means:+0.145 within:+0.1` changes `within_share` by {:+.4f} [{:+.4f}, {:+.4f}], moves `logdist_std` (by "
    "{:.4f} [{:.4f}, {:.4f}]) and `cdnv_k2` (by a factor of {:.2f} [{:.2f}, {:.2f}]) toward collapse and `cdnv_log` "
    "away from it (by {:.3f} [{:.3f}, {:.3f}]), and raises the loss by {:.3f} nats [{:.3f}, {:.3f}].",
)
def separable_share() -> Numbers:
    name = "uniform_means:+0.145 within:+0.1"
    return (
        *apart_effect(name, "within_share"), *down(apart_effect(name, "logdist_std")),
        *ratio(apart(name), apart("none"), "cdnv_k2"), *up(apart_effect(name, "cdnv_log")), *up(apart_effect(name)),
    )  # fmt: skip


@claim(
    "separable.md",
    "All of this is learning speed: the runs end at {:.3f} of an epoch, and over the {} arms the changes of training "
    "and validation loss agree (r {:.4f}).",
)
def separable_speed() -> Numbers:
    means = last("separable").drop(columns="checkpoint").groupby("intervene").mean(numeric_only=True)
    effects = (means - means.loc["none"]).drop(index="none")
    return apart("none")["epoch"].iloc[0], len(effects), r(effects["train_loss"], effects["val_loss"])


@claim(
    "separable-pilot.md",
    "Of {} pairs of doses, {} has a mean `logdist_std` within one standard deviation of the control's: "
    "`uniform_means:+0.03 within:+0.05`, which lowers `within_share` by {:.3f} [{:.3f}, {:.3f}].",
)
def pilot_nc1() -> Numbers:
    pairs = in_deviations("separable-pilot")
    kept = pairs.index[pairs["logdist_std"].abs() < 1]
    if list(kept) != ["uniform_means:+0.03 within:+0.05"]:
        raise ValueError(f"other pairs hold logdist_std: {list(kept)}")
    return len(pairs), len(kept), *down(apart_effect(kept[0], "within_share", "separable-pilot"))


@claim(
    "separable-pilot.md",
    "{} pairs have both `within_share` and `cdnv_log` within the bound of the rule; `uniform_means:+0.05 within:+0.05` "
    "comes nearest, at {:+.1f} and {:+.1f} standard deviations.",
)
def pilot_gnc2() -> Numbers:
    pairs = in_deviations("separable-pilot")[["within_share", "cdnv_log"]]
    farther = pairs.abs().max(axis=1)
    nearest = str(farther.idxmin())
    if nearest != "uniform_means:+0.05 within:+0.05":
        raise ValueError(f"another pair is nearest: {nearest}")
    return int((farther < 2).sum()), *(float(value) for value in pairs.loc[nearest].to_numpy())


@claim(
    "separable-pilot.md",
    "With `within:+0.2`, raising `uniform_means` from `+0.05` to `+0.2` takes the mean `logdist_std` from {:.3f} to "
    "{:.3f} (control {:.3f}) and `within_share` from {:.3f} to {:.3f} (control {:.3f}).",
)
def pilot_doses() -> Numbers:
    names = ("uniform_means:+0.05 within:+0.2", "uniform_means:+0.2 within:+0.2", "none")
    return [
        float(apart(name, "separable-pilot")[metric].mean())
        for metric in ("logdist_std", "within_share")
        for name in names
    ]


def pilot_2(name: str, *metrics: str) -> list[float]:
    return [float(in_deviations("separable-pilot-2")[metric][name]) for metric in metrics]


@claim(
    "separable-pilot-2.md",
    "`uniform_means:+0.15 within:+0.2` has a mean `logdist_std` {:+.1f} standard deviations from the control's, and "
    "lowers `within_share` by {:.3f} [{:.3f}, {:.3f}].",
)
def pilot_2_nc1() -> Numbers:
    name = "uniform_means:+0.15 within:+0.2"
    return *pilot_2(name, "logdist_std"), *down(apart_effect(name, "within_share", "separable-pilot-2"))


@claim(
    "separable-pilot-2.md",
    "`uniform_means:+0.19 within:+0.2` has `cdnv_log` at {:+.1f} and `within_share` at {:+.1f} standard deviations.",
)
def pilot_2_log() -> Numbers:
    return pilot_2("uniform_means:+0.19 within:+0.2", "cdnv_log", "within_share")


@claim(
    "separable-pilot-2.md",
    "`uniform_means:+0.145 within:+0.1` has `within_share` at {:+.1f} and `cdnv_log` at {:+.1f} standard deviations.",
)
def pilot_2_share() -> Numbers:
    return pilot_2("uniform_means:+0.145 within:+0.1", "within_share", "cdnv_log")


def seeds_relations(*metrics: str) -> list[float]:
    rows = last("seeds").assign(log_k2=lambda table: np.log(table["cdnv_k2"]))
    return [number for metric in metrics for number in r_interval(rows[metric], rows["val_loss"])]


@claim(
    "seeds.md",
    "Seeds with a lower loss have a lower `cdnv_k2` (r {:+.2f} [{:+.2f}, {:+.2f}]) but a higher `within_share` (r "
    "{:+.2f} [{:+.2f}, {:+.2f}]) and `cdnv_log` (r {:+.2f} [{:+.2f}, {:+.2f}]): the sign of the relation between "
    "NC1 and the loss depends on the metric.",
)
def seeds_nc1() -> Numbers:
    return seeds_relations("log_k2", "within_share", "cdnv_log")


@claim(
    "seeds.md",
    "The training loss correlates with the validation loss (r {:+.2f}), and given the training loss the partial "
    "correlation is {:+.2f} for `cdnv_k2`, {:+.2f} for `agreement` and {:+.2f} for `within_share`.",
)
def seeds_learned() -> Numbers:
    rows = last("seeds").assign(log_k2=lambda table: np.log(table["cdnv_k2"]))
    loss, train = rows["val_loss"], rows["train_loss"]
    partial = [partial_r(rows[metric], loss, train) for metric in ("log_k2", "agreement", "within_share")]
    return r(train, loss), *partial


@claim(
    "seeds.md",
    "The curvature of the output layer (`flatness` in these tables, where large means sharp) has r {:+.2f} "
    "[{:+.2f}, {:+.2f}], `agreement` r {:+.2f} [{:+.2f}, {:+.2f}] and `duality_cos_mean` r {:+.2f} [{:+.2f}, "
    "{:+.2f}].",
)
def seeds_others() -> Numbers:
    return seeds_relations("flatness", "agreement", "duality_cos_mean")


def widths() -> tuple[pd.DataFrame, pd.DataFrame]:
    return last("scale", width=16), last("scale", width=128)


@claim(
    "scale.md",
    "From width {} to {} the NC1 metrics move in different directions: `cdnv_k2` falls by a factor of {:.0f} "
    "[{:.0f}, {:.0f}] and the scale-free `directional_cdnv` by {:.1f} [{:.1f}, {:.1f}], `cdnv` hardly changes "
    "({:.2f} [{:.2f}, {:.2f}]), and `within_share` ({:.2f} → {:.2f}), `vci` ({:.2f} → {:.2f}) and `cdnv_log` "
    "({:.2f} → {:.2f}) rise, away from collapse.",
)
def scale_nc1() -> Numbers:
    narrow, wide = widths()
    on = ("depth", "seed")
    moved(narrow, wide, rise=("within_share", "vci", "cdnv_log"), on=on)
    falls = [ratio(narrow, wide, metric, on) for metric in ("cdnv_k2", "directional_cdnv", "cdnv")]
    rises = from_to(narrow, wide, "within_share", "vci", "cdnv_log")
    return 16, 128, *falls[0], *falls[1], *falls[2], *rises


@claim(
    "scale.md",
    "The loss falls from {:.2f} to {:.2f} and `agreement` rises from {:.3f} to {:.3f}; over the {} runs their "
    "correlation is {:.2f}, which describes runs of different size and does not show that one causes the other.",
)
def scale_loss() -> Numbers:
    rows = last("scale")
    return *from_to(*widths(), "val_loss", "agreement"), len(rows), r(rows["agreement"], rows["val_loss"])


@claim(
    "scale.md",
    "Width and depth are confounded with under-training: tokens per parameter fall from {:.0f} to {:.2f}, and at "
    "the largest width the loss rises with depth ({:.2f}, {:.2f}, {:.2f}).",
)
def scale_training() -> Numbers:
    shapes = last("scale").groupby(["width", "depth"])
    tokens = tokens_per_parameter(last("scale"))
    losses = shapes["val_loss"].mean()[128]
    return tokens.max(), tokens.min(), *losses


NC1 = ("cdnv_k2", "cdnv", "cdnv_log", "within_share", "vci", "directional_cdnv")


@claim(
    "initialisation.md",
    "Before training all {} NC1 metrics are closer to collapse than with shuffled labels (`cdnv_k2` {:.2f} against "
    "{:.1f}, `cdnv_log` {:.2f} against {:.2f}) and the nearest class centre finds {:.1f} % of the next tokens "
    "(shuffled labels {:.2f} %), while `duality_cos_mean` ({:.4f} against {:.4f}) and `agreement` ({:.4f} against "
    "{:.4f}) are at their null values.",
)
def initial() -> Numbers:
    start, null = (where(checkpoints("initialisation", column=column), tokens=0) for column in ("value", "null"))
    for metric in NC1:
        down(interval(differences(start, null, metric)))
    names = ("cdnv_k2", "cdnv_log", "ncc_accuracy", "duality_cos_mean", "agreement")
    values = dict(zip(names, np.reshape(from_to(start, null, *names), (-1, 2)), strict=True))
    values["ncc_accuracy"] = 100 * values["ncc_accuracy"]
    return len(NC1), *(number for name in names for number in values[name])


@claim(
    "initialisation.md",
    "From {:,} to {:,} tokens, where the loss falls from {:.2f} to {:.2f}, `cdnv_k2` ({:.3f} → {:.3f}), `cdnv` "
    "({:.2f} → {:.2f}), `vci` ({:.2f} → {:.2f}) and `directional_cdnv` ({:.3f} → {:.3f}) move toward collapse, "
    "`cdnv_log` ({:.2f} → {:.2f}) and `within_share` ({:.2f} → {:.2f}) away from it, each in all {} seeds.",
)
def initial_later() -> Numbers:
    before, after = at("initialisation", tokens=147_320), at("initialisation", tokens=609_600)
    moved(before, after, rise=("cdnv_log", "within_share"), fall=("cdnv_k2", "cdnv", "vci", "directional_cdnv"))
    metrics = from_to(before, after, "cdnv_k2", "cdnv", "vci", "directional_cdnv")
    return (
        147_320, 609_600, *from_to(before, after, "val_loss"), *metrics,
        *from_to(before, after, "cdnv_log", "within_share"), len(before),
    )  # fmt: skip


@claim(
    "initialisation.md",
    "In the same span `agreement` ({:.2f} → {:.2f}) and `duality_cos_mean` ({:.2f} → {:.2f}) rise in all seeds; "
    "earlier `duality_cos_mean` falls once, from {:.3f} to {:.3f}.",
)
def initial_rising() -> Numbers:
    before, after = at("initialisation", tokens=147_320), at("initialisation", tokens=609_600)
    moved(before, after, rise=("agreement", "duality_cos_mean"))
    early, dip = at("initialisation", tokens=17_272), at("initialisation", tokens=35_560)
    moved(early, dip, fall=["duality_cos_mean"])
    return *from_to(before, after, "agreement", "duality_cos_mean"), *from_to(early, dip, "duality_cos_mean")


PLAIN: Mapping[str, float] = {"weight_decay": 0.0005, "dropout": 0.0, "label_smoothing": 0.0}
DROPOUT, SMOOTHING, DECAY = {**PLAIN, "dropout": 0.2}, {**PLAIN, "label_smoothing": 0.2}, {**PLAIN, "weight_decay": 0.1}


@claim(
    "training.md",
    "With weak decay alone, from epoch {} to {}, the validation loss falls from {:.2f} to {:.2f}, `cdnv_k2` ({:.3f} "
    "→ {:.3f}) and `directional_cdnv` ({:.3f} → {:.3f}) move toward collapse, and `cdnv_log` ({:.2f} → {:.2f}), "
    "`within_share` ({:.2f} → {:.2f}), `cdnv` and `vci` away from it, each in all {} seeds.",
)
def training_metrics() -> Numbers:
    before, after = at("training", **PLAIN, checkpoint=3), at("training", **PLAIN, checkpoint=12)
    moved(before, after, rise=("cdnv", "cdnv_log", "within_share", "vci"), fall=("cdnv_k2", "directional_cdnv"))
    columns = ("val_loss", "cdnv_k2", "directional_cdnv", "cdnv_log", "within_share")
    return 3, 12, *from_to(before, after, *columns), len(before)


@claim(
    "training.md",
    "Regularisers move NC1 metrics in different directions too: at epoch {} dropout has the lower `cdnv_log` "
    "({:.2f} against {:.2f}) and the higher `cdnv_k2` ({:.3f} against {:.3f}), label smoothing the higher "
    "`cdnv_log` ({:.2f} against {:.2f}) and the lower `directional_cdnv` ({:.3f} against {:.3f}), compared with "
    "weak decay alone.",
)
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


@claim(
    "training.md",
    "The validation loss at the end is {:.2f} with weak decay, {:.2f} with strong decay, {:.2f} with label "
    "smoothing and {:.2f} with dropout; `agreement` is {:.2f}, {:.2f}, {:.2f} and {:.2f}.",
)
def training_end() -> Numbers:
    return by_regulariser("training", 12, "val_loss", "agreement")


@claim(
    "overfitting.md",
    "At the end the validation loss is {:.2f} with weak decay, {:.2f} with strong decay, {:.2f} with label "
    "smoothing and {:.2f} with dropout; `agreement` is {:.2f}, {:.2f}, {:.2f} and {:.2f}.",
)
def overfitting_end() -> Numbers:
    return by_regulariser("overfitting", 40, "val_loss", "agreement")


def weak_decay(epoch: int) -> pd.DataFrame:
    return at("overfitting", **PLAIN, checkpoint=epoch)


@claim(
    "overfitting.md",
    "With weak decay the validation loss is lowest, {:.2f}, at epoch {}, and {:.2f} at epoch {}; the gap between "
    "validation and training loss grows from {:.2f} to {:.2f} nats, accuracy on validation text falls from {:.3f} "
    "to {:.3f}, and that of the nearest class centre rises from {:.3f} to {:.3f}.",
)
def overfitting_loss() -> Numbers:
    rows = at("overfitting", **PLAIN)
    best = rows.groupby("checkpoint")["val_loss"].mean().idxmin()
    moved(weak_decay(6), weak_decay(40), rise=["val_loss", "gap", "ncc_accuracy"], fall=["val_accuracy"])
    lowest_loss, end, *others = from_to(
        weak_decay(6), weak_decay(40), "val_loss", "gap", "val_accuracy", "ncc_accuracy"
    )
    return lowest_loss, str(best), end, 40, *others


@claim(
    "overfitting.md",
    "From epoch {} to {} all {} NC1 metrics, `agreement` ({:.2f} → {:.2f}), `duality_cos_mean` ({:.2f} → "
    "{:.2f}) and `logdist_std` ({:.3f} → {:.3f}) move toward collapse; compared with epoch {}, `within_share` is "
    "farther from collapse at the end ({:.2f} → {:.2f}).",
)
def overfitting_metrics() -> Numbers:
    moved(weak_decay(6), weak_decay(40), rise=["agreement", "duality_cos_mean"], fall=[*NC1, "logdist_std"])
    moved(weak_decay(3), weak_decay(40), rise=["within_share"])
    numbers = from_to(weak_decay(6), weak_decay(40), "agreement", "duality_cos_mean", "logdist_std")
    return 6, 40, len(NC1), *numbers, 3, *from_to(weak_decay(3), weak_decay(40), "within_share")


@claim(
    "overfitting.md",
    "On validation text, from epoch {} to {}, `cdnv_log` ({:.2f} → {:.2f}) and `within_share` ({:.2f} → {:.2f}) "
    "move far away from collapse, `cdnv_k2` ({:.3f} → {:.3f}) and `directional_cdnv` ({:.3f} → {:.3f}) little.",
)
def overfitting_validation() -> Numbers:
    names = [f"{metric} (validation)" for metric in ("cdnv_log", "within_share", "cdnv_k2", "directional_cdnv")]
    return 6, 40, *from_to(weak_decay(6), weak_decay(40), *names)


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


@claim(
    "text.md",
    "The NC1 metrics order the {} texts differently: `cdnv_log` and `within_share` are lowest on {} ({:.2f}; "
    "{:.2f}), `cdnv_k2` and `vci` on {} ({:.3f}; {:.3f}).",
)
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


@claim(
    "text.md",
    "`agreement` is {:.3f} on TinyStories, {:.3f} on storyworld, {:.3f} on Shakespeare, {:.3f} on Python code "
    "(standard deviation over seeds {:.3f}) and {:.3f} on IMDB ({:.3f}); the last pair cannot be told apart.",
)
def text_agreement() -> Numbers:
    spread = last("text").groupby("corpus")["agreement"].std()
    return (
        *by_text("agreement", "tinystories", "storyworld", "shakespeare", "code"), spread["code"],
        *by_text("agreement", "imdb"), spread["imdb"],
    )  # fmt: skip


@claim(
    "text.md",
    "`duality_cos_mean` goes from {:.3f} ({}) to {:.3f} ({}), with a standard deviation over seeds of at most {:.3f}.",
)
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


@claim(
    "real.md",
    "`agreement` is highest after block {} of {} in SmolLM2 ({:.3f}; block {}: {:.3f}, block {}: {:.3f}) and after "
    "block {} of {}, the last, in stories260K ({:.3f}).",
)
def real_agreement() -> Numbers:
    large, small = layers(SMOL, "agreement"), layers(STORIES, "agreement")
    peak = int(str(large.idxmax()))
    return (
        peak, len(large) - 1, large.max(), peak - 1, large[str(peak - 1)], peak + 1, large[str(peak + 1)],
        str(small.idxmax()), len(small) - 1, small.max(),
    )  # fmt: skip


@claim(
    "real.md",
    "The final norm lowers it in both, from {:.3f} to {:.3f} and from {:.3f} to {:.3f}.",
)
def real_norm() -> Numbers:
    large, small = layers(SMOL, "agreement"), layers(STORIES, "agreement")
    return large["30"], large["last"], small["5"], small["last"]


@claim(
    "real.md",
    "In SmolLM2 the NC1 metrics are lowest at different layers: `cdnv_log` ({:.2f}) at the vector that enters the "
    "output layer, `cdnv_k2` after block {} ({:.1e}) and `scatter_ratio` after block {} ({:.2f}); in stories260K "
    "`cdnv_k2`, `cdnv`, `cdnv_log` and `within_share` fall from block to block.",
)
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


@claim(
    "contexts.md",
    "On the second-order Markov chain the variance within tokens is {:.3f} of all variance after training: {:.3f} "
    "between contexts (pairs of tokens) and {:.3f} within them; before training it is {:.3f}, {:.3f} and {:.3f}.",
)
def contexts_markov() -> Numbers:
    between = context_shares("markov", 2, "token_between_contexts")
    within = context_shares("markov", 2, "token_within_context")
    return [number for end in (1, 0) for number in (between[end] + within[end], between[end], within[end])]


@claim(
    "contexts.md",
    "The share between contexts of one token is {:.3f} before training and {:.3f} after it on TinyStories, {:.3f} "
    "and {:.3f} on storyworld; the share within them falls from {:.3f} to {:.3f} and from {:.3f} to {:.3f}.",
)
def contexts_stories() -> Numbers:
    metrics, corpora = ("token_between_contexts", "token_within_context"), ("tinystories", "storyworld")
    return [number for metric in metrics for corpus in corpora for number in context_shares(corpus, 1, metric)]


@claim(
    "contexts.md",
    "On the chain `context_within` is {:.3f} for contexts of one token and {:.3f}, {:.3f} and {:.3f} for longer "
    "ones, as a second-order source implies.",
)
def contexts_order() -> Numbers:
    return [context_shares("markov", n, "context_within")[1] for n in (1, 2, 3, 4)]


def tied() -> tuple[pd.DataFrame, pd.DataFrame]:
    return last("families", tied=True), last("families", tied=False)


@claim(
    "families.md",
    "Untying the embeddings lowers the validation loss in all {} pairs, by {:.2f} ({}) to {:.2f} nats ({}), and "
    "raises `duality_cos_mean` in all of them ({:.2f} to {:.2f} tied, {:.2f} to {:.2f} untied).",
)
def families_loss() -> Numbers:
    on = ("family", "seed")
    moved(*tied(), rise=["duality_cos_mean"], fall=["val_loss"], on=on)
    gains = -differences(tied()[1], tied()[0], "val_loss", on)
    by_family = gains.groupby("family").mean()
    cosines = [rows.groupby("family")["duality_cos_mean"].mean() for rows in tied()]
    ends = [end for means in cosines for end in (means.min(), means.max())]
    return len(gains), by_family.min(), by_family.idxmin(), by_family.max(), by_family.idxmax(), *ends


@claim(
    "families.md",
    "The NC1 metrics disagree: in all {} pairs untying moves `cdnv_log` and `within_share` away from collapse, and "
    "`vci` and `directional_cdnv` toward it; `cdnv_k2` rises in {}.",
)
def families_nc1() -> Numbers:
    on = ("family", "seed")
    moved(*tied(), rise=("cdnv_log", "within_share"), fall=("vci", "directional_cdnv"), on=on)
    return len(tied()[0]), int((differences(tied()[1], tied()[0], "cdnv_k2", on) > 0).sum())


@claim(
    "families.md",
    "Over the {} untied families `agreement` and the loss correlate (r {:+.2f}), which describes families that "
    "learn at different speeds.",
)
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


@claim(
    "coupling.md",
    "With all of the decay in the gradient the NC1 metrics move in opposite directions: `cdnv_k2` rises by a factor "
    "of {:.2f} [{:.2f}, {:.2f}] and `directional_cdnv` by {:.2f} [{:.2f}, {:.2f}], away from collapse, and "
    "`cdnv_log` falls by {:.3f} [{:.3f}, {:.3f}] and `within_share` by {:.3f} [{:.3f}, {:.3f}], toward it, as do "
    "`cdnv` and `vci`.",
)
def coupling_nc1() -> Numbers:
    for metric in ("cdnv", "vci"):
        down(coupled("1", metric))
    away = [ratio(optimiser("1"), optimiser("0"), metric) for metric in ("cdnv_k2", "directional_cdnv")]
    toward = [down(coupled("1", metric)) for metric in ("cdnv_log", "within_share")]
    return *away[0], *away[1], *toward[0], *toward[1]


@claim(
    "coupling.md",
    "`duality_cos_mean` rises by {:.3f} [{:.3f}, {:.3f}], toward collapse; `agreement` falls by {:.3f} [{:.3f}, "
    "{:.3f}] and `logdist_std` rises by {:.3f} [{:.3f}, {:.3f}], away from it.",
)
def coupling_others() -> Numbers:
    return (
        *up(coupled("1", "duality_cos_mean")), *down(coupled("1", "agreement")), *up(coupled("1", "logdist_std"))
    )  # fmt: skip


@claim(
    "coupling.md",
    "The runs learn slower: the validation loss is {:.3f} nats [{:.3f}, {:.3f}] higher with all of the decay in the "
    "gradient, {:.3f} [{:.3f}, {:.3f}] with a share of `0.5` and {:.3f} [{:.3f}, {:.3f}] with `coupled-adam`; of "
    "their steps {:.0f}, {:.0f} and {:.0f} % were clipped, of the control's {:.0f} %.",
)
def coupling_loss() -> Numbers:
    names = ("1", "0.5", "coupled-adam")
    clipped = [100 * float(optimiser(name)["clipped"].mean()) for name in (*names, "0")]
    return *(number for name in names for number in up(coupled(name, "val_loss"))), *clipped


@claim(
    "README.md",
    "The NC1 metrics disagree. From width {} to {}, `cdnv_k2` falls by a factor of {:.0f} [{:.0f}, {:.0f}] and "
    "`directional_cdnv` by {:.1f} [{:.1f}, {:.1f}], while `within_share`, `vci` and `cdnv_log` rise, away from "
    "collapse, in all {} pairs of depth and seed. Wider models had fewer tokens per parameter, so width is "
    "confounded with under-training. ([Width and depth](docs/results/scale.md))",
)
def readme_nc1() -> Numbers:
    falls = [ratio(*widths(), metric, ("depth", "seed")) for metric in ("cdnv_k2", "directional_cdnv")]
    moved(*widths(), rise=("within_share", "vci", "cdnv_log"), on=("depth", "seed"))
    return 16, 128, *falls[0], *falls[1], len(widths()[0])


@claim(
    "README.md",
    "A penalty that pulls the features of a class together (`within:+0.1`) slows learning: its validation loss is "
    "{:.3f} nats [{:.3f}, {:.3f}] above the control's after {} steps ({} paired seeds; with permuted labels {:.3f} "
    "[{:.3f}, {:.3f}]). It moves the paper's NC1 metric, `cdnv_k2`, away from collapse (by a factor of {:.2f} "
    "[{:.2f}, {:.2f}]) and the other NC1 metrics toward it (`cdnv_log` by {:.3f} [{:.3f}, {:.3f}]), and over the {} "
    "arms and shams NC1 and GNC2 move together (r {:+.3f} between `cdnv_log` and `logdist_std`), so the slowdown "
    "cannot be attributed to a property. One dose, one learning rate. ([Interventions](docs/results/cause.md))",
)
def readme_cause() -> Numbers:
    seeds, steps = len(arm("none")), arm("none")["steps"].iloc[0]
    every = mean_effects()
    cause_direction()  # it checks the other NC1 metrics
    return (
        *up(effect("within:+0.1")), steps, seeds, *up(effect("within:+0.1:sham")),
        *ratio(arm("within:+0.1"), arm("none"), "cdnv_k2"), *down(effect("within:+0.1", "cdnv_log")),
        len(every), r(every["cdnv_log"], every["logdist_std"]),
    )  # fmt: skip


@claim(
    "README.md",
    "Among {} seeds of one shape, a lower loss comes with a lower `cdnv_k2` (r {:+.2f} [{:+.2f}, {:+.2f}]) but also "
    "with a higher `within_share` (r {:+.2f} [{:+.2f}, {:+.2f}]). Seeds differ in how far they have learned: the "
    "training loss has r {:+.2f} with the validation loss, and given it the partial correlations are {:+.2f} and "
    "{:+.2f}. ([Seeds at fixed scale](docs/results/seeds.md))",
)
def readme_seeds() -> Numbers:
    learned = list(seeds_learned())
    return len(last("seeds")), *seeds_relations("log_k2", "within_share"), *learned[:2], learned[3]


@claim(
    "README.md",
    "Collapse can grow while generalisation gets worse. Trained on a small text ({} seeds), a model has its best "
    "validation loss at epoch {}; by epoch {} all NC1 metrics of the table have moved toward collapse and "
    "`agreement` with the nearest class centre has risen by {:.2f} [{:.2f}, {:.2f}] to {:.2f}, while the validation "
    "loss has risen by {:.2f} nats [{:.2f}, {:.2f}], its gap to the training loss by {:.2f} [{:.2f}, {:.2f}], and "
    "accuracy on validation text has fallen from {:.3f} to {:.3f}. One shape; most steps were clipped. ([Past the "
    "best validation loss](docs/results/overfitting.md))",
)
def readme_overfitting() -> Numbers:
    overfitting_metrics()  # checks that all NC1 metrics fall
    best, end = weak_decay(6), weak_decay(40)
    loss = list(overfitting_loss())
    rises = [up(interval(differences(end, best, column))) for column in ("agreement", "val_loss", "gap")]
    agreement = float(end["agreement"].mean())
    return len(end), loss[1], loss[3], *rises[0], agreement, *rises[1], *rises[2], *loss[6:8]


@claim(
    "README.md",
    "Most of the variance within a token that remains after training lies between its contexts. On a second-order "
    "Markov chain {:.3f} [{:.3f}, {:.3f}] of all variance is between contexts (untrained {:.3f}) and {:.3f} "
    "[{:.3f}, {:.3f}] within them (untrained {:.3f}); on TinyStories, for contexts of one token, {:.3f} [{:.3f}, "
    "{:.3f}] (untrained {:.3f}) and {:.3f} [{:.3f}, {:.3f}] (untrained {:.3f}). {} seeds; frequent contexts only, "
    "and not a lower bound on the variance. ([Contexts](docs/results/contexts.md))",
)
def readme_contexts() -> Numbers:
    numbers: list[float | str] = []
    for corpus, n in (("markov", 2), ("tinystories", 1)):
        rows = where(contexts(), corpus=corpus, n=n)
        trained, untrained = where(rows, tokens=rows["tokens"].max()), where(rows, tokens=0)
        for metric in ("token_between_contexts", "token_within_context"):
            numbers += [*interval(trained[metric]), float(untrained[metric].mean())]
    return *numbers, last("contexts")["seed"].nunique()


TINYSTORIES_BYTES_PER_TOKEN = 755_216 / 243_299
"""Of the validation split with `bpe:1024`, from corpus.json and the text; the tables do not have it."""


@claim(
    "index.md",
    "Most runs have {:,} parameters and saw {:,} tokens: {:.1f} tokens per parameter, {:.3f} of an epoch; their "
    "loss was still falling by {:.2f} nats for each factor of e in tokens, and they reach {:.2f} bits per byte on "
    "TinyStories, where stories260K ({:,} parameters) has {:.2f}.",
)
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


@claim(
    "README.md",
    "Most of these runs have {:.1f} tokens per parameter and reach {:.2f} bits per byte on TinyStories, where "
    "stories260K, of similar size, has {:.2f}.",
)
def readme_trained() -> Numbers:
    numbers = list(how_far_trained())
    return numbers[2], numbers[5], numbers[7]


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


LOSSES = (
    "The effects of TinyStories are not shown here: `within:+0.1` changes the validation loss by {:+.3f} nats "
    "[{:+.3f}, {:+.3f}] and `isotropy:+0.1` by {:+.3f} [{:+.3f}, {:+.3f}] ({} pairs)."
)
SPREAD = (
    "Seeds of the control have a standard deviation of {:.3f} nats here and {:.3f} on TinyStories, so effects of a "
    "tenth of a nat cannot be seen."
)
SPEED = (
    "This is learning speed: the runs end at {:.3f} of an epoch, and over the {} arms the changes of training and "
    "validation loss agree (r {:.4f})."
)


@claim("imdb.md", LOSSES)
def imdb_losses() -> Numbers:
    return core_losses("imdb")


@claim(
    "imdb.md",
    "`uniform_means:+0.1` lowers the validation loss by {:.3f} nats [{:.3f}, {:.3f}], by more than on TinyStories "
    "({:.3f} [{:.3f}, {:.3f}]).",
)
def imdb_uniform() -> Numbers:
    return *down(core_effect("imdb", "uniform_means:+0.1")), *down(effect("uniform_means:+0.1"))


@claim(
    "imdb.md",
    "`within:+0.1` moves `cdnv_k2` away from collapse (by a factor of {:.2f} [{:.2f}, {:.2f}]) and `cdnv_log` toward "
    "it (by {:.3f} [{:.3f}, {:.3f}]), as on TinyStories.",
)
def imdb_nc1() -> Numbers:
    factor = ratio(core_arm("imdb", "within:+0.1"), core_arm("imdb", "none"), "cdnv_k2")
    return *factor, *down(core_effect("imdb", "within:+0.1", "cdnv_log"))


@claim("imdb.md", SPREAD)
def imdb_spread() -> Numbers:
    return core_spread("imdb")


@claim("imdb.md", SPEED)
def imdb_speed() -> Numbers:
    return core_speed("imdb")


@claim("code.md", LOSSES)
def code_losses() -> Numbers:
    return core_losses("code")


@claim(
    "code.md",
    "With `uniform_means:+0.1` the loss is {:.3f} nats [{:.3f}, {:.3f}] lower, and it is lower in {} of {} seeds.",
)
def code_uniform() -> Numbers:
    changes = differences(core_arm("code", "uniform_means:+0.1"), core_arm("code", "none"), "val_loss")
    return *down(interval(changes)), int((changes < 0).sum()), len(changes)


@claim("code.md", SPREAD)
def code_spread() -> Numbers:
    return core_spread("code")


@claim("code.md", SPEED)
def code_speed() -> Numbers:
    return core_speed("code")


@claim(
    "README.md",
    "That slowdown is shown on TinyStories alone. On film reviews and on Python code ({} pairs each) it is not shown: "
    "{:+.3f} nats [{:+.3f}, {:+.3f}] and {:+.3f} [{:+.3f}, {:+.3f}]. Seeds of the control differ there by {:.2f} and "
    "{:.2f} nats (standard deviation; {:.3f} on TinyStories), so an effect of that size could not be seen. ([Film "
    "reviews](docs/results/imdb.md), [Python code](docs/results/code.md))",
)
def readme_texts() -> Numbers:
    effects = [includes_zero_core(suite, "within:+0.1") for suite in ("imdb", "code")]
    spreads = [core_spread(suite) for suite in ("imdb", "code")]
    return (
        len(core_arm("imdb", "none")), *effects[0], *effects[1], spreads[0][0], spreads[1][0], spreads[0][1],
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
        f"| {label} | {' | '.join(direction(before, after, metric, on) for metric in NC1)} |"
        for label, (before, after, on) in contrasts.items()
    ]


def direction(before: pd.DataFrame, after: pd.DataFrame, metric: str, on: tuple[str, ...]) -> str:
    """`+` if the metric falls, toward collapse, in every pair, and `−` if it rises in every pair."""
    if metric not in before:
        return "not measured"
    changes = differences(after, before, metric, on)
    return "+" if (changes < 0).all() else "−" if (changes > 0).all() else "mixed"


if __name__ == "__main__":
    for one in CLAIMS:
        if one.page in (sys.argv[1:] or [one.page]):
            print(f"{one.page}: {one.rendered()}\n")
    print(*nc1_directions(), sep="\n")
