"""Where the runs come from: settings, versions and hashes of their `run.json`, what failed, and how to do it again."""

import json
import shlex
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from collapselab.analysis.diagnosis import Finding
from collapselab.report.story import Story

LONGEST = 12
"""Different values of a setting that are listed; more are counted."""


@final
@dataclass(frozen=True)
class Provenance:
    """What the last section says. `facts` are settings and versions, each with its values and how many runs have it."""

    facts: list[tuple[str, str]]
    corpora: list[str]
    failures: list[tuple[str, str, str]]
    findings: list[Finding]
    """Signatures that were found; those that were not stand in the table."""
    unknown: list[tuple[str, str, int]]
    """Signatures that could not be judged: which, why, and of how many runs."""
    missing: list[tuple[str, str, int]]
    commands: list[str]
    records: int


def provenance(story: Story) -> Provenance:
    """From the run.json of every run that has one, and from the tables."""
    records = _records(story)
    findings = story.analysis.findings if story.analysis else []
    unknown = Counter((one.signature, one.evidence) for one in findings if one.found == "unknown")
    return Provenance(
        facts=_facts(records),
        corpora=sorted({_corpus(record) for record in records if record.get("corpus")}),
        failures=[(run["run"], run["checkpoint"], run["why"]) for run in story.runs if run["why"]],
        findings=[one for one in findings if one.found == "yes"],
        unknown=[(*key, count) for key, count in unknown.items()],
        missing=_missing(story),
        commands=_commands(story),
        records=len(records),
    )


def corpus_of(story: Story) -> Path | None:
    """The corpus that all runs were trained on, if it is one and still where it was."""
    paths = {record["corpus"].get("path") for record in _records(story) if isinstance(record.get("corpus"), dict)}
    found = [Path(path) for path in paths if path and (Path(path) / "corpus.json").is_file()]
    return found[0] if len(paths) == 1 and found else None


def _records(story: Story) -> list[dict[str, Any]]:
    records = []
    for run in dict.fromkeys(run["run"] for run in story.runs):
        path = story.directory / run / "run.json"
        if not path.is_relative_to(story.directory) or ".." in path.parts or not path.is_file():
            continue
        try:
            record = json.loads(path.read_text(encoding="utf-8"))
        except ValueError:
            continue  # a run that is being written, or was damaged, is no less a run of the tables
        if isinstance(record, dict):
            records.append(record)
    return records


def _facts(records: list[dict[str, Any]]) -> list[tuple[str, str]]:
    found: dict[str, Counter[str]] = {}
    for record in records:
        origin = record.get("provenance") or {}
        told = {**(record.get("settings") or {}), **(origin.get("versions") or {})}
        told |= {name: origin.get(name) for name in ("python", "commit", "machine", "device", "precision")}
        for name, value in told.items():
            if value is not None:
                found.setdefault(name, Counter())[f"{value:g}" if isinstance(value, float) else str(value)] += 1
    return [(name, _counted(values, len(records))) for name, values in found.items()]


def _counted(values: Counter[str], runs: int) -> str:
    if len(values) == 1:
        return next(iter(values))
    if len(values) > LONGEST:
        return f"{len(values)} different values"
    return ", ".join(f"{value} ({count} of {runs})" for value, count in values.items())


def _corpus(record: dict[str, Any]) -> str:
    corpus = record["corpus"]
    name = Path(str(corpus.get("path", "?"))).name
    return f"{name}, hash {corpus.get('hash', '?')}, vocabulary {corpus.get('vocabulary', '?')}"


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
