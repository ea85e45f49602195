"""Lists of tokens: most and least collapsed of each kind, first names, and what moved since initialisation."""

from typing import Any

import pandas as pd

from collapselab.corpus.token_kinds import KINDS
from collapselab.errors import ConfigError
from collapselab.report.charts.panels import Figure, Listing
from collapselab.report.data import View
from collapselab.report.figures.tokens import MISSING
from collapselab.report.token_frame import ModelTokens, model_tokens, quoted

FIRST_NAMES = frozenset({
    "Alice", "Amy", "Anna", "Annie", "Ben", "Benny", "Betty", "Bill", "Billy", "Bob", "Bobby", "Charlie", "Daisy",
    "Dan", "David", "Ella", "Emily", "Emma", "Eve", "Fred", "George", "Grace", "Jack", "James", "Jane", "Jenny", "Jill",
    "Jim", "Jimmy", "Joe", "Joey", "John", "Johnny", "Kate", "Katie", "Kim", "Kitty", "Leo", "Lila", "Lily", "Lisa",
    "Lola", "Lucy", "Mandy", "Maria", "Mark", "Mary", "Max", "Mia", "Mike", "Molly", "Nick", "Nina", "Peter", "Polly",
    "Rosie", "Ruby", "Sally", "Sam", "Sammy", "Sara", "Sarah", "Sophie", "Sue", "Susie", "Ted", "Tim", "Timmy", "Toby",
    "Tom", "Tommy", "Tony", "Will", "Zoe",
})  # fmt: skip


TOP = 5
MOST_NAMES, MOST_MOVED = 40, 15


def token_ends(view: View) -> Figure:
    """The tokens of each kind with the smallest and with the largest CDNV."""
    title, tokens = "Most and least collapsed tokens of each kind", model_tokens(view.story)
    if tokens is None or tokens.last.frame["cdnv"].notna().sum() < 2 * TOP:
        return Figure("token_ends", title, missing=MISSING if tokens is None else "Too few classes have a CDNV.")
    caption = (
        f"{tokens.name}: by the mean CDNV term of a class with all others, small where it has collapsed. In brackets "
        "how often the token occurs: frequent tokens follow more kinds of text, and scatter more for that reason too."
    )
    rows = []
    for kind in KINDS:
        group = (
            tokens.last.frame[tokens.last.frame["kind"] == kind].dropna(subset=["cdnv"]).sort_values(["cdnv", "token"])
        )
        if len(group) >= 2 * TOP:
            rows.append((kind, f"{len(group):,}", _named(group.head(TOP)), _named(group.tail(TOP).iloc[::-1])))
    columns = ("kind", "classes", "most collapsed", "least collapsed")
    return Figure("token_ends", title, caption, lists=[Listing("", columns, rows)])


def _named(group: pd.DataFrame) -> str:
    return "\n".join(f"{quoted(row.text)} {row.cdnv:.3g} ({row.count_:,})" for row in _rows(group))


def first_names(view: View) -> Figure:
    """The paper's table: CDNV and interference (mean cosine with all others) of tokens that are first names."""
    title, tokens = "First names", model_tokens(view.story)
    if tokens is None:
        return Figure("first_names", title, missing=MISSING)
    frame = tokens.last.frame
    names = frame[[text.startswith(" ") and text[1:] in FIRST_NAMES for text in frame["text"]]]
    names = names.sort_values("count", ascending=False).head(MOST_NAMES)
    if names.empty:
        return Figure(
            "first_names", title, missing="No token with enough samples is a first name with a space before it."
        )
    ranks = frame[["cdnv", "cosine"]].rank(pct=True)
    caption = (
        f"{tokens.name}: the variability (CDNV) and the interference (mean cosine with all other classes) of single "
        "names, as in the paper; in brackets the share of all classes with a smaller or equal value. Nearest is the "
        "token whose class mean is nearest."
    )
    rows = [
        (
            quoted(row.text), f"{row.count_:,}",
            _ranked(row.cdnv, ranks["cdnv"][row.Index]), _ranked(row.cosine, ranks["cosine"][row.Index]),
            _number(row.agreement), _number(row.loss), quoted(row.nearest_text),
        )
        for row in _rows(names)
    ]  # fmt: skip
    head = ("name", "occurs", "CDNV", "mean cosine", "agreement", "loss", "nearest")
    paper = "Wu & Papyan’s table of first names, for the model here."
    return Figure("first_names", title, caption, lists=[Listing("", head, rows)], paper=paper)


def token_moves(view: View) -> Figure:
    """What moved most between initialisation and the end, by CDNV and by the norm of the class mean."""
    title, tokens = "What moved between initialisation and the end", model_tokens(view.story)
    if tokens is None or tokens.initial is None:
        missing = MISSING if tokens is None else "Classes at initialisation were not measured."
        return Figure("token_moves", title, missing=missing)
    try:
        lists = [_moved(tokens, metric) for metric in ("cdnv", "norm")]
    except ConfigError as error:
        return Figure("token_moves", title, missing=str(error))
    caption = f"{tokens.name}, beside the same run at initialisation: the classes that changed most, as a ratio."
    return Figure("token_moves", title, caption, lists=lists)


def _moved(tokens: ModelTokens, metric: str) -> Listing:
    assert tokens.initial is not None
    moved = tokens.initial.compared(tokens.last, metric)
    rows = [
        (quoted(row.text), str(row.kind), f"{row.count_:,}", _number(row.before), _number(row.after),
         f"{row.after / row.before:.3g}")
        for row in _rows(moved.head(MOST_MOVED))
    ]  # fmt: skip
    median = float((moved["after"] / moved["before"]).median())
    caption = f"{metric}: median ratio {median:.3g} over {len(moved):,} classes"
    return Listing(caption, ("token", "kind", "occurs", "before", "after", "ratio"), rows)


def _rows(frame: pd.DataFrame) -> list[Any]:
    """Rows by name; a tuple's own `count` is a method."""
    return list(frame.rename(columns={"count": "count_"}).itertuples())


def _number(value: float | None) -> str:
    return "–" if pd.isna(value) else f"{float(value):.3g}"


def _ranked(value: float | None, share: float) -> str:
    return "–" if pd.isna(value) else f"{_number(value)} ({share:.0%})"
