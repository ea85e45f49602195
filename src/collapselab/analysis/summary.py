"""The summary: sentences made from the tables, each no stronger than the rows it is made from.

What a corrected test shows is called shown, and nothing else. What is not shown is not called absent: the power is
beside it. Where there are too few models for a test, the sentence says "cannot tell" and why. Relations across models
are called descriptions, since scale and training differ too.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from collapselab.analysis.models import Models
from collapselab.analysis.statements import STATEMENTS
from collapselab.analysis.words import Sentence, many


def summarise(models: Models, tables: Mapping[str, Sequence[Any]]) -> list[Sentence]:
    """What the tables allow to say, from the widest view to the narrowest."""
    sentences = [Sentence("models", "runs", _models(models))]
    for name, statement in STATEMENTS.items():
        sentences += statement.sentences(models, tables[name])
    return sentences


def _models(models: Models) -> str:
    frame = models.known
    runs, failed = frame["run"].nunique(), models.frame.loc[models.frame["why"].notna(), "run"].nunique()
    source = f", checkpoints of {many(runs, 'run')}," if runs < len(frame) else ""
    text = (
        f"{many(len(frame), 'model')}{source} of {many(frame['architecture'].nunique(), 'architecture')} and "
        f"{many(frame['regime'].nunique(), 'training regime')}, {many(len(models.metrics), 'metric')} each"
    )
    missing = int(frame[[*models.metrics, models.outcome]].isna().sum().sum())
    text += f"; {many(missing, 'value')} missing and left out of what needs them" if missing else ""
    return f"{text}; {many(failed, 'run')} failed, and what is unfinished is not counted." if failed else f"{text}."
