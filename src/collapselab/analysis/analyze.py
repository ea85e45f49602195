"""analyze: from the two tables of a suite to statements about them.

`<directory>/analysis/` gets a table for every entry of `STATEMENTS`, and `summary.json`: what the tables allow to say,
in sentences, and what it was made from.
"""

from pathlib import Path
from typing import Any

from collapselab.analysis.models import combine, tables_of
from collapselab.analysis.statements import STATEMENTS, Given
from collapselab.analysis.stored import Analysis, Request, last_request, read_analysis
from collapselab.analysis.summary import summarise
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
    rows: dict[str, Any] = {}
    with progress("analysing", total=len(STATEMENTS), unit="tables") as advance:
        for name, statement in STATEMENTS.items():
            rows[name] = statement.rows(Given(models, request.permutations, request.seed, rows))
            advance(1)
    asked = (request.outcome, request.permutations, request.seed)
    analysis = Analysis(directory, *asked, len(models.known), rows, summarise(models, rows), tables.hashes)
    analysis.write(directory / "analysis")
    return analysis
