"""Where the runs come from: settings, versions and hashes of their `run.json`, what failed, and how to do it again."""

import shlex
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import final

from collapselab.analysis.diagnosis import Finding
from collapselab.errors import DamagedError, DiskError
from collapselab.records.run import RunRecord
from collapselab.report.story import Story

LONGEST = 12
"""Different values of a setting that are listed; more are counted."""


@final
@dataclass(frozen=True)
class Origins:
    """What the last section says. `facts` are settings and versions, each with its values and how many runs have it."""

    facts: list[tuple[str, str]]
    corpora: list[str]
    failures: list[tuple[str, str, str]]
    findings: list[Finding]
    """Signatures that were found; those that were not are in the table."""
    unknown: list[tuple[str, str, int]]
    """Signatures that could not be judged: which, why, and of how many runs."""
    missing: list[tuple[str, str, int]]
    commands: list[str]
    records: int


def provenance(story: Story) -> Origins:
    """From the run.json of every run that has one, and from the tables."""
    records = _records(story)
    corpora = [record.corpus for record in records]
    findings = story.analysis.findings if story.analysis else []
    unknown = Counter((row.signature, row.evidence) for row in findings if row.found is None)
    return Origins(
        facts=_facts(records),
        corpora=sorted({f"{Path(c.path).name}, hash {c.hash}, vocabulary {c.vocabulary}" for c in corpora}),
        failures=[(run["run"], run["checkpoint"], run["why"]) for run in story.runs if run["why"]],
        findings=[row for row in findings if row.found],
        unknown=[(*key, count) for key, count in unknown.items()],
        missing=_missing(story),
        commands=_commands(story),
        records=len(records),
    )


def corpus_of(story: Story) -> Path | None:
    """The corpus that all runs were trained on, if it is one and still where it was."""
    paths = {record.corpus.path for record in _records(story)}
    path = Path(paths.pop()) if len(paths) == 1 else None
    return path if path is not None and is_readable_file(path / "corpus.json") else None


def _records(story: Story) -> list[RunRecord]:
    """The runs' own records. A run that is being written, or whose record is damaged, has none: it is still in the
    tables, which were checked when they were made."""
    records = []
    for run in dict.fromkeys(run["run"] for run in story.runs):
        path = story.directory / run / "run.json"
        if not path.is_relative_to(story.directory) or ".." in path.parts or not is_readable_file(path):
            continue
        with suppress(DamagedError, DiskError, FileNotFoundError):
            records.append(RunRecord.read(path))
    return records


def is_readable_file(path: Path) -> bool:
    """Whether there is a file of that name; False too where the name is none, or its folder is forbidden."""
    try:
        return path.is_file()
    except OSError:
        return False


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


def _missing(story: Story) -> list[tuple[str, str, int]]:
    """Reasons why values are missing: metric, reason, how many rows."""
    counted = Counter((row.metric, row.why) for row in story.rows if row.why)
    return [(metric, why, count) for (metric, why), count in counted.most_common() if why]


def _commands(story: Story) -> list[str]:
    """From the recipe where the folder is a suite's, else from its tables on."""
    folder = shlex.quote(story.name)
    suite = [f"collapselab suite run {folder}"] if (story.directory / "suite.json").is_file() else []
    if story.analysis is None:
        return [*suite, f"collapselab analyze {folder}", f"collapselab report {folder}"]
    asked = story.analysis
    options = f"--outcome {asked.outcome} --permutations {asked.permutations} --seed {asked.seed}"
    return [*suite, f"collapselab analyze {folder} {options}", f"collapselab report {folder}"]
