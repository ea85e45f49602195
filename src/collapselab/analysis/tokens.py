"""Which tokens have collapsed and which have not: the table of classes, ranked, searched, binned and compared.

A class with few samples has a small variance for that reason alone, so classes with fewer than `LEAST_COUNT` are left
out and counted, unless asked for.
"""

import math
import re
from dataclasses import dataclass
from difflib import get_close_matches

import numpy as np
import pandas as pd
import torch

from collapselab.core.moments import ClassMoments
from collapselab.errors import ConfigError, did_you_mean
from collapselab.records.measurement import Result
from collapselab.records.result_folder import StoredResult, kept_moments, load_moments, moments_identity

SORTABLE = {
    "cdnv": "mean CDNV term with all other classes: small is collapsed",
    "norm": "length of the centred class mean",
    "variance": "mean squared distance from the class mean",
    "cosine": "mean cosine with all other classes",
    "distance": "to the nearest class mean",
    "duality_cos": "cosine of output row and centred mean",
    "head_norm": "length of the output row",
    "agreement": "share where output layer and nearest centre agree",
    "accuracy": "share where the output layer is right",
    "loss": "mean cross-entropy in nats",
    "count": "samples in the split",
    "samples": "validation tokens",
}
"""Columns that tokens can be sorted by, and what they are."""

SIGNED = ("cosine", "duality_cos", "agreement", "accuracy")
"""Compared by their difference; all others, which are lengths, counts and losses, by their ratio."""

LEAST_COUNT = 10


@dataclass(frozen=True)
class TokenTable:
    """The classes of one layer of a split, a row each by token id; `left_out` have too few samples.

    >>> from collapselab import load_results, token_table
    >>> first, last = (token_table(result) for result in load_results("runs/small"))
    >>> most, least = last.ends("cdnv", 5)  # collapsed most and least
    >>> bool(most["cdnv"].max() <= least["cdnv"].min())
    True
    >>> bool(last.matching("^ [a-z]")["text"].str.startswith(" ").all())  # tokens by their text
    True
    >>> near = last.neighbours(last.find("."), top=3)  # the classes nearest to one
    >>> int(last.bins(2)["classes"].sum()) == len(last.frame)  # medians of rare and of frequent tokens
    True
    >>> moved = first.compared(last, "cdnv")  # what changed most comes first
    >>> bool(abs(moved["change"].iloc[0]) >= abs(moved["change"].iloc[-1]))
    True
    """

    name: str
    frame: pd.DataFrame
    left_out: int
    min_count: int

    def metric(self, name: str) -> str:
        """A column to sort by; ConfigError with the nearest name for any other, and where nothing is in it."""
        if name not in SORTABLE:
            hint = did_you_mean(name, SORTABLE, otherwise=f"It is one of {', '.join(SORTABLE)}.")
            raise ConfigError(f"sort: {name[:60]!r} is not a number of a class. {hint}")
        if self.frame[name].isna().all():
            raise ConfigError(f"sort: no class of {self.name} has a {name} at this layer and split. Sort by another.")
        return name

    def matching(self, pattern: str | None) -> pd.DataFrame:
        """The classes whose text the pattern is found in."""
        if pattern is None:
            return self.frame
        try:
            return self.frame[[re.search(pattern, text) is not None for text in self.frame["text"]]]
        except re.error as error:
            raise ConfigError(f"match: {pattern[:60]!r} is not a regular expression ({error}).") from error

    def ends(self, metric: str, top: int, *, match: str | None = None) -> tuple[pd.DataFrame, pd.DataFrame]:
        """The classes with the smallest values and those with the largest, the largest first; no class is in both."""
        frame = self.matching(match)
        ordered = frame[frame[self.metric(metric)].notna()].sort_values([metric, "token"])
        lowest = ordered.head(top)
        return lowest, ordered.iloc[len(lowest) :].tail(top).iloc[::-1]

    def find(self, text: str) -> int:
        """The token of a text, or of an id as in #1234; ConfigError with the nearest texts where there is none."""
        if re.fullmatch(r"#[0-9]{1,9}", text) and int(text[1:]) in self.frame.index:
            return int(text[1:])
        for wanted in (text, f" {text}"):
            matches = self.frame.index[self.frame["text"] == wanted]
            if len(matches):
                return int(matches[0])
        near = get_close_matches(text, list(dict.fromkeys(self.frame["text"])), n=3)
        hint = f"Near it are {', '.join(map(repr, near))}." if near else "A space before it is part of a token."
        raise ConfigError(
            f"like: {text[:60]!r} is not a token of {self.name} with at least {self.min_count} samples. {hint}"
        )

    def neighbours(self, token: int, *, top: int, moments: ClassMoments | None = None) -> pd.DataFrame:
        """The classes nearest to one: distance, cosine of the centred means, and whether they are of one kind.

        From the class means where they are stored. Without them those that the table knows of: the nearest one, and the
        classes whose nearest it is; their cosines follow from both norms and the distance.
        """
        frame = self.frame
        if moments is None:
            own = frame.loc[token]
            distances = dict(frame.loc[frame["nearest"] == token, "distance"])
            if not pd.isna(own["nearest"]) and own["nearest"] in frame.index:
                distances[int(own["nearest"])] = own["distance"]
            by_token = pd.Series(distances, dtype=float)
        else:
            ids = frame.index.to_numpy()
            means = moments.means[torch.from_numpy(ids.astype(np.int64))].numpy()
            by_token = pd.Series(np.linalg.norm(means - means[list(ids).index(token)], axis=1), index=ids).drop(token)
        nearest = frame.loc[by_token.index].assign(distance=by_token).sort_values(["distance", "token"]).head(top)
        own_norm, norms = float(frame["norm"][token]), nearest["norm"].astype(float)
        with np.errstate(divide="ignore", invalid="ignore"):
            cosine = (own_norm**2 + norms**2 - nearest["distance"] ** 2) / (2 * own_norm * norms)
        return nearest.assign(cosine=cosine.clip(-1, 1), same_kind=nearest["kind"] == frame.at[token, "kind"])

    def bins(self, number: int, *, match: str | None = None) -> pd.DataFrame:
        """Medians of every number over classes of like frequency."""
        return bins(self.matching(match), number)

    def compared(self, other: "TokenTable", metric: str) -> pd.DataFrame:
        """The classes of both, with the metric `before` and `after` and its change, the largest first.

        A change is a difference, or for lengths, counts and losses the logarithm of the ratio.
        """
        shared = self.frame.index.intersection(other.frame.index)
        if not len(shared):
            raise ConfigError(f"compare: {self.name} and {other.name} have no class in common.")
        mine, theirs = self.frame.loc[shared], other.frame.loc[shared]
        if (mine["text"] != theirs["text"]).any():
            raise ConfigError(
                f"compare: {other.name} has another vocabulary than {self.name}. Only models of one tokenizer can be "
                "compared token by token."
            )
        before, after = mine[metric].astype(float), theirs[metric].astype(float)
        ratio = (after / before).where((before > 0) & (after > 0))
        change = after - before if metric in SIGNED else ratio.map(math.log, na_action="ignore")
        frame = mine.assign(before=before, after=after, change=change)[np.isfinite(change.astype(float))]
        return frame.reindex(frame["change"].abs().sort_values(ascending=False, kind="stable").index)


def token_table(
    result: Result, *, split: str = "train", layer: str = "last", min_count: int = LEAST_COUNT
) -> TokenTable:
    """The classes of a measurement; ConfigError where it was made without them.

    >>> from collapselab import load_results, token_table
    >>> table = token_table(load_results("runs/small")[-1])
    >>> table.frame.sort_values("cdnv").head(3)[["text", "count", "cdnv"]].shape  # the most collapsed tokens
    (3, 3)
    """
    facts = result.facts
    name = f"{facts['run']} {facts['checkpoint']}" if facts["in_a_run"] else facts["model"]
    if "classes" not in result.tables:
        model = "RUN" if facts["in_a_run"] else facts["model"]  # a run knows its name, not where it is now
        where = f", RUN being the folder of {facts['run']}." if facts["in_a_run"] else ""
        raise ConfigError(
            f"{name}: measured without the table of classes. Make it: collapselab measure {model} "
            f"--corpus {facts['corpus']} --classes{where}"
        )
    whole = result.frame("classes")
    frame = whole[(whole["split"] == split) & (whole["layer"] == layer)]
    if frame.empty:
        layers = ", ".join(dict.fromkeys(whole["layer"]))
        raise ConfigError(f"{name}: no classes of layer {layer!r}, split {split!r}. It has the layers {layers}.")
    return tokens_of_frame(name, frame, min_count=min_count)


def tokens_of_frame(name: str, frame: pd.DataFrame, *, min_count: int = LEAST_COUNT) -> TokenTable:
    """The classes of one layer of a split, whose rows these are."""
    frame = frame.set_index("token", drop=False).rename_axis(None)
    frame["text"] = frame["text"].fillna("")
    frame["nearest_text"] = frame["nearest"].map(frame["text"]).fillna("")
    kept = frame[frame["count"] >= min_count]
    return TokenTable(name, kept, len(frame) - len(kept), min_count)


def stored_moments(stored: StoredResult, *, split: str, layer: str) -> ClassMoments | None:
    """The class moments that were kept of a measurement, which are those of the training split at the last layer."""
    file = kept_moments(stored) if (split, layer) == ("train", "last") else None
    return None if file is None else load_moments(file, moments_identity(stored.result.facts))


def bins(frame: pd.DataFrame, number: int) -> pd.DataFrame:
    """Medians of every number over classes of like frequency: ranges of counts of equal width on a logarithmic axis."""
    if not 1 <= number <= 100:
        raise ConfigError(f"bins: {number} is not possible; 1 to 100 are.")
    logs = np.log2(frame["count"].astype(float))
    width = (logs.max() - logs.min()) / number or 1.0
    place = ((logs - logs.min()) / width).astype(int).clip(upper=number - 1)
    groups = frame.groupby(place)
    counts = groups["count"].agg(["min", "max", "size"]).astype(int).set_axis(["low", "high", "classes"], axis=1)
    numbers = frame[[name for name in SORTABLE if name != "count"]].astype(float)
    medians: pd.DataFrame = counts.join(numbers.groupby(place).median()).reset_index(drop=True)
    return medians
