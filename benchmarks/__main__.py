"""Measure everything that has a bar, and print each line as soon as it is known.

    make bench                                   full sizes, about ten minutes on two cores
    make bench ARGS="--quick"                    small sizes, under a minute; the bars are those of the full sizes
    make bench ARGS="--only pairs --only loss"   some of it
    make bench ARGS="--compare before.json"      beside the figures of an earlier run

All figures are ratios within one run, or bytes, so that another machine, or a busy one, can be compared. Times are
medians of turns that the contestants take one after the other. The result is written to benchmarks/results.json.
"""

import argparse
import dataclasses
import importlib
import json
import os
import platform
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

if "OMP_WAIT_POLICY" not in os.environ:  # as the command line does, before torch is imported
    os.environ["OMP_WAIT_POLICY"] = "passive"
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")

import torch
from rich.console import Console
from rich.text import Text

from benchmarks.timing import Line

HERE = Path(__file__).parent
SUITES = {
    "moments": "core",
    "pairs": "core",
    "decisions": "core",
    "inverse": "core",
    "busy": "busy",
    "corpus": "corpus",
    "loss": "loss",
    "training": "training",
    "laboratory": "laboratory",
    "interventions": "interventions",
    "waits": "waits",
    "collecting": "measure",
    "contexts": "contexts",
    "measuring tables": "measure",
    "measuring memory": "measure",
    "planning": "suite",
    "overhead": "suite",
}
"""Benchmarks by name, each with the module that has it in its `ALL`."""
LONG = ("contexts", "measuring tables", "measuring memory")
"""Those that say nothing in a few seconds: run quickly only where they are asked for."""


def main() -> None:
    """Measure, show and save."""
    options = _options()
    before = _earlier(options.compare)
    console, lines, start = Console(width=max(120, Console().width)), [], time.monotonic()
    usual = [name for name in SUITES if not (options.quick and name in LONG)]
    for line in _measured(options.only or usual, quick=options.quick):
        console.print(_shown(line, before.get(line.name)), soft_wrap=True)
        lines.append(line)
        _save(lines, quick=options.quick)
    missed = [line for line in lines if line.met is False]
    minutes = (time.monotonic() - start) / 60
    console.print(f"{len(lines)} figures in {minutes:.1f} minutes; {len(missed)} bars missed. {HERE / 'results.json'}")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="make bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help=f"small sizes, under a minute; without {', '.join(LONG)}")
    parser.add_argument(
        "--only",
        choices=SUITES,
        action="append",
        metavar="NAME",
        help=f"only this (repeat for more): {', '.join(SUITES)}",
    )
    parser.add_argument("--compare", type=Path, metavar="FILE", help="a results.json of an earlier run")
    return parser.parse_args()


def _measured(names: Iterable[str], *, quick: bool) -> Iterator[Line]:
    """The lines of these benchmarks, each as soon as it is known; what runs is said on stderr."""
    names = list(names)
    for number, name in enumerate(names, start=1):
        print(f"[{number}/{len(names)}] {name} …", file=sys.stderr, flush=True)
        start = time.monotonic()
        yield from importlib.import_module(f"benchmarks.{SUITES[name]}").ALL[name](quick)
        print(f"        {name}: {time.monotonic() - start:.0f} s", file=sys.stderr, flush=True)


def _shown(line: Line, before: float | None) -> Text:
    verdict = {None: ("     –", ""), True: ("   met", "green"), False: ("missed", "bold red")}[line.met]
    text = Text.assemble((verdict[0], verdict[1]), f"  {line.figure:9.2f} {line.unit:<2} {line.bar:>9}  {line.name}")
    details = [f"{name} {value}" for name in ("ours", "baseline", "limit") if (value := getattr(line, name))]
    if details:
        text.append(f"  ({', '.join(details)})", style="dim")
    if before is not None and before:
        text.append(f"  was {before:.2f}: {100 * (line.figure / before - 1):+.0f} %", style="yellow")
    return text


def _earlier(path: Path | None) -> dict[str, float]:
    if path is None:
        return {}
    try:
        return {line["name"]: line["figure"] for line in json.loads(path.read_text())["lines"]}
    except (OSError, ValueError, KeyError, TypeError) as error:
        sys.exit(f"{path}: not the results of a benchmark ({type(error).__name__}: {error}).")


def _save(lines: list[Line], *, quick: bool) -> None:
    machine = {"threads": torch.get_num_threads(), "processor": platform.machine(), "torch": torch.__version__}
    result = {"quick": quick, "machine": machine, "lines": [dataclasses.asdict(line) for line in lines]}
    (HERE / "results.json").write_text(json.dumps(result, indent=1, ensure_ascii=False))


if __name__ == "__main__":
    main()
