"""Run every benchmark, print the table, write benchmarks/results.json. `--quick`: small sizes, under a minute."""

import argparse
import dataclasses
import json
import platform
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

from benchmarks import core, corpus, cost, loss, measure, suite, training

SUITES = {**core.ALL, **corpus.ALL, **loss.ALL, **training.ALL, **measure.ALL, **cost.ALL, **suite.ALL}


def main() -> None:
    """Measure, show and save."""
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes, under a minute")
    parser.add_argument("--only", choices=SUITES, action="append", help="only these (repeat for more)")
    options = parser.parse_args()
    console, lines = Console(stderr=True), []
    for name in options.only or SUITES:
        with console.status(f"{name} …"):
            lines += SUITES[name](options.quick)
    table = Table("what", "figure", "bar", "", "ours", "baseline", "limit", box=None, header_style="bold")
    for line in lines:
        verdict = "" if line.met is None else "met" if line.met else "[red]missed"
        table.add_row(
            line.name, f"{line.figure:.2f} {line.unit}", line.bar, verdict, line.ours, line.baseline, line.limit
        )
    Console(width=150).print(table)
    machine = {"threads": torch.get_num_threads(), "processor": platform.machine(), "torch": torch.__version__}
    result = {"quick": options.quick, "machine": machine, "lines": [dataclasses.asdict(line) for line in lines]}
    (Path(__file__).parent / "results.json").write_text(json.dumps(result, indent=1, ensure_ascii=False))


if __name__ == "__main__":
    main()
