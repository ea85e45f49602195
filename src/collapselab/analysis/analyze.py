"""analyze: from the two tables of a suite to statements about them.

<directory>/analysis/relate.csv       every metric against the outcome
                     controls.csv     the same beyond scale and training, and among seeds alone
                     trends.csv       along width, depth and training; what regularisation does
                     prediction.csv   beside a scaling law, on architectures it has not seen
                     diagnosis.csv    signatures of single runs
                     summary.json     what all that allows to say, in sentences, and what it was made from
"""

from pathlib import Path

from collapselab.analysis.controls import controls
from collapselab.analysis.diagnosis import diagnose
from collapselab.analysis.models import combine, tables_of
from collapselab.analysis.prediction import predictions
from collapselab.analysis.relate import relate
from collapselab.analysis.stored import Analysis, Request, last_request, read_analysis
from collapselab.analysis.summary import summarise
from collapselab.analysis.trends import trends
from collapselab.progress import progress
from collapselab.records.tables import StoredTables


def analyze(directory: str | Path, *, outcome: str = "val_loss", permutations: int = 10_000, seed: int = 0) -> Analysis:
    """Relate every metric of `directory` to the outcome, in scale and apart from scale, and write what was found.

    The same tables, permutations and seed give the same numbers.
    """
    request = Request(outcome, permutations, seed)
    return _analyze(Path(directory), tables_of(directory), request)


def current_analysis(directory: str | Path, tables: StoredTables) -> Analysis:
    """The analysis of these tables: the one in the folder if it fits them, else a new one with the same request."""
    directory = Path(directory)
    return read_analysis(directory, tables) or _analyze(directory, tables, last_request(directory))


def _analyze(directory: Path, tables: StoredTables, request: Request) -> Analysis:
    models = combine(tables.runs, tables.rows, outcome=request.outcome)
    with progress("analysing", total=5, unit="tables") as advance:
        relations = relate(models, permutations=request.permutations, seed=request.seed)
        advance(1)
        beyond = controls(models, relations)
        advance(1)
        along = trends(models)
        advance(1)
        predicted = predictions(models, seed=request.seed)
        advance(1)
        findings = diagnose(models)
        advance(1)
    sentences = summarise(models, relations, beyond, along, predicted, findings)
    analysis = Analysis(
        directory, request.outcome, request.permutations, request.seed, len(models.known),
        relations, beyond, along, predicted, findings, sentences, tables.hashes,
    )  # fmt: skip
    analysis.write(directory / "analysis")
    return analysis
