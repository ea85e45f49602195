"""Provenance of the runs: settings, versions and hashes of their `run.json`, failures, and commands to repeat them."""

import shlex
from collections import Counter
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from collapselab.analysis.curves import Finding
from collapselab.errors import DamagedError, DiskError
from collapselab.records.references import Comparison, compare_with_references
from collapselab.records.run import RunRecord
from collapselab.report.data import ReportData

LONGEST = 12
"""Number of different values of a setting that are listed."""


@dataclass(frozen=True)
class Origins:
    """The last section of the page. `facts` are settings and versions, each with its values and number of runs."""

    facts: list[tuple[str, str]]
    corpora: list[str]
    failures: list[tuple[str, str, str]]
    findings: list[Finding]
    """The runs that are over-fitted; all others are in the table."""
    unknown: list[tuple[str, int]]
    """Why runs could not be judged, and how many."""
    missing: list[tuple[str, str, int]]
    commands: list[str]
    records: int


def provenance(data: ReportData) -> Origins:
    """Collect the facts from the run.json of every run that has one, and from the tables."""
    records = _records(data)
    corpora = [record.corpus for record in records]
    findings = data.analysis.tables["diagnosis"] if data.analysis else []
    unknown = Counter(row.evidence for row in findings if row.found is None)
    missing = Counter((row.metric, row.why) for row in data.rows if row.why)
    return Origins(
        facts=_facts(records),
        corpora=sorted({f"{Path(c.path).name}, hash {c.hash}, vocabulary {c.vocabulary}" for c in corpora}),
        failures=[(run["run"], run["checkpoint"], run["why"]) for run in data.runs if run["why"]],
        findings=[row for row in findings if row.found],
        unknown=[*unknown.items()],
        missing=[(metric, why, count) for (metric, why), count in missing.most_common()],
        commands=_commands(data),
        records=len(records),
    )


def _records(data: ReportData) -> list[RunRecord]:
    """Return the runs' own records. A run that is being written, or whose record is damaged, has none; it is still in
    the tables, which were checked when they were made.
    """
    records = []
    for run in dict.fromkeys(run["run"] for run in data.runs):
        path = data.directory / run / "run.json"
        if path.is_relative_to(data.directory) and ".." not in path.parts:
            with suppress(DamagedError, DiskError, OSError, ValueError):  # ValueError: a name that is no path
                records.append(RunRecord.read(path))
    return records


def _facts(records: list[RunRecord]) -> list[tuple[str, str]]:
    counts: dict[str, Counter[str]] = {}
    for record in records:
        origin = record.provenance
        facts = {**record.settings, **origin.versions}
        facts |= {name: getattr(origin, name) for name in ("python", "commit", "machine", "device", "precision")}
        for name, value in facts.items():
            if value is not None:
                counts.setdefault(name, Counter())[f"{value:g}" if isinstance(value, float) else str(value)] += 1
    return [(name, _counted(values, len(records))) for name, values in counts.items()]


def _counted(values: Counter[str], runs: int) -> str:
    if len(values) == 1:
        return next(iter(values))
    if len(values) > LONGEST:
        return f"{len(values)} different values"
    return ", ".join(f"{value} ({count} of {runs})" for value, count in values.items())


def _commands(data: ReportData) -> list[str]:
    """Return the commands that repeat this: from the recipe of a suite, else from the tables."""
    folder = shlex.quote(data.name)
    suite = [f"collapselab suite run {folder}"] if (data.directory / "suite.json").is_file() else []
    asked = data.analysis
    options = f" --outcome {asked.outcome} --permutations {asked.permutations} --seed {asked.seed}" if asked else ""
    return [*suite, f"collapselab analyze {folder}{options}", f"collapselab report {folder}"]


def model_facts(data: ReportData) -> list[str]:
    """Describe one model: its size, the text that it was measured on, and its scores there."""
    run = data.runs[0]
    last = next((row for row in data.rows if (row.split, row.layer, row.bin) == ("train", "last", "all")), None)
    known = {
        "{}": run["family"],
        "{:,} parameters": run["parameters"],
        "on {}": run.get("corpus"),
        "{:,} tokens": last.tokens if last else None,
        "{:,} classes": last.classes if last else None,
        "loss {:.3f}": run["val_loss"],
        "accuracy {:.1%}": run["val_accuracy"],
        "{:.3f} bits per byte": run.get("bits_per_byte"),
    }
    return [words.format(value) for words, value in known.items() if value is not None]


def comparison(data: ReportData) -> Comparison:
    """Compare one model with the reference models."""
    run = data.runs[0]
    return compare_with_references(data.rows, str(run.get("corpus")), run["parameters"])


def next_steps(data: ReportData, missing: Collection[str]) -> list[tuple[str, str]]:
    """Return commands that reveal more about one model; `missing` are the keys of figures that were not drawn."""
    measure = f"collapselab measure {shlex.quote(data.runs[0]['run'])}"
    options = {"layers": "--layers all", "token_ends": "--classes", "bins": "--bins 4"}
    asked = [option for key, option in options.items() if key in missing]
    steps = [("measure more of it", f"{measure} --data TEXT {' '.join(asked)} --out r.json")] if asked else []
    return [
        *steps,
        ("compare it with another", f"{measure} OTHER --data TEXT --out results/ && collapselab report results/"),
        ("its tokens, one by one", f"collapselab tokens {shlex.quote(data.directory.name)}"),
        ("what a metric means", "collapselab metrics agreement"),
    ]
