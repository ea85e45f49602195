"""The tables: what every stage writes and reads."""

from collapselab.results.published import import_published
from collapselab.results.tables import (
    RESULT_COLUMNS,
    RUN_COLUMNS,
    Row,
    Run,
    read_results,
    read_runs,
    to_frame,
    write_results,
    write_runs,
    write_table,
)

__all__ = [
    "RESULT_COLUMNS",
    "RUN_COLUMNS",
    "Row",
    "Run",
    "import_published",
    "read_results",
    "read_runs",
    "to_frame",
    "write_results",
    "write_runs",
    "write_table",
]
