"""Write the tables of the documents from the catalogue and the records.

`--check` only says if they are current.
"""

import sys
from collections.abc import Callable
from dataclasses import MISSING
from functools import partial
from pathlib import Path
from typing import Any, Literal

from error_rates import interval_table, verdict_table
from file_tables import FILE_TABLES
from notebooks.run import NAMES, page
from reference import reference

from collapselab.core.catalogue import CONTEXT_METRICS, METRICS
from collapselab.corpus.token_kinds import KINDS
from collapselab.declared import options_of
from collapselab.measurement.estimate import memory, sizes_of
from collapselab.models.sizes import Architecture, transformer
from collapselab.records.options import Options, Reading, Recipe, Running
from collapselab.records.outcomes import ON, OUTCOMES
from collapselab.training.interventions import INTERVENTIONS
from collapselab.training.settings import Settings

ROOT = Path(__file__).parents[1]

TRAIN_TOKENS, VALIDATION_TOKENS, PROCESSES = 10**7, 10**6, 8


def short_table() -> str:
    """A row a property: which metrics tell of it."""
    rows = ["| property | metrics (★: in the paper's Table 1) |", "|---|---|"]
    properties = dict.fromkeys(metric.property for metric in METRICS.values())
    for name in properties:
        ids = [f"`{m.id}`{' ★' if m.in_paper else ''}" for m in METRICS.values() if m.property == name]
        rows.append(f"| {name} | {', '.join(ids)} |")
    return "\n".join(rows)


def full_table() -> str:
    """A row a metric: everything the catalogue says of it."""
    rows = [
        "| id | property | definition | toward collapse | ideal | version | reference |",
        "|---|---|---|---|---|---|---|",
    ]
    for m in METRICS.values():
        cells = (
            f"`{m.id}`{' ★' if m.in_paper else ''}",
            m.property,
            m.formula.replace("|", "\\|"),
            m.direction or "–",
            m.ideal_text,
            str(m.version),
            m.reference,
        )
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows)


def _config(model_type: str, width: int, depth: int, vocabulary: int, feed_forward: int, **more: Any) -> dict[str, Any]:
    sizes = {"hidden_size": width, "num_hidden_layers": depth, "vocab_size": vocabulary}
    config = {"model_type": model_type, **sizes, "intermediate_size": feed_forward, "num_attention_heads": 16, **more}
    if model_type == "gpt_neo":
        pattern = [[["global", "local"], depth // 2]]
        return {**config, "num_layers": depth, "num_heads": 16, "attention_types": pattern}
    return config


def _heads(queries: int, keys_and_values: int, size: int) -> dict[str, int]:
    return {"num_attention_heads": queries, "num_key_value_heads": keys_and_values, "head_dim": size}


VECTORS = {"gpt_neo": (10, 2), "gpt_neox": (13, 2), "llama": (2, 1), "gemma2": (4, 1), "gemma3_text": (4, 1)}
"""Numbers in norms and biases, in widths: of a block, and after the last."""


def _architecture(config: dict[str, Any]) -> Architecture:
    kind, width = config["model_type"], config["hidden_size"]
    in_block, after = VECTORS[kind]
    head_norms = 2 * config["head_dim"] if kind == "gemma3_text" else 0
    return transformer(
        width=width,
        depth=config["num_hidden_layers"],
        vocabulary=config["vocab_size"],
        feed_forward=config["intermediate_size"],
        heads=config["num_attention_heads"],
        head_size=config.get("head_dim"),
        key_value_heads=config.get("num_key_value_heads"),
        gated=kind in ("llama", "gemma2", "gemma3_text"),
        tied=kind not in ("gpt_neox", "llama"),
        local=config["num_hidden_layers"] // 2 if kind == "gpt_neo" else 0,
        window=256 if kind == "gpt_neo" else 0,
        positions=2048 if kind == "gpt_neo" else 0,
        block_vectors=in_block * width + head_norms,
        last_vectors=after * width,
    )


LADDER: dict[str, tuple[Architecture, dict[str, Any]]] = {
    name: (_architecture(config), config)
    for name, config in {
        "GPT-Neo 12 × 1024": _config("gpt_neo", 1024, 12, 50257, 4096),
        "Pythia 160M": _config("gpt_neox", 768, 12, 50304, 3072, num_attention_heads=12),
        "Pythia 1.4B": _config("gpt_neox", 2048, 24, 50304, 8192),
        "Pythia 12B": _config("gpt_neox", 5120, 36, 50688, 20480, num_attention_heads=40),
        "Llama 3 8B": _config("llama", 4096, 32, 128256, 14336, **_heads(32, 8, 128)),
        "Llama 3 70B": _config("llama", 8192, 80, 128256, 28672, **_heads(64, 8, 128)),
        "Llama 3.1 405B": _config("llama", 16384, 126, 128256, 53248, **_heads(128, 8, 128)),
        "Gemma 2 9B": _config("gemma2", 3584, 42, 256000, 14336, **_heads(16, 8, 256)),
        "Gemma 2 27B": _config("gemma2", 4608, 46, 256000, 36864, **_heads(32, 16, 128)),
        "Gemma 3 27B": _config("gemma3_text", 5376, 62, 262208, 21504, **_heads(32, 16, 128)),
    }.items()
}
"""Published models, smallest first within a family, each with the settings of its config.json that give its size."""


def sizes_table() -> str:
    """A row a model: what it is, and the memory of measuring it."""
    rows = [
        "| model | parameters | depth × width | classes | weights | last layer | all layers | all layers, sharded |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, (a, _) in LADDER.items():
        sizes = [
            f"{a.parameters / 1e9:,.2f}·10⁹",
            f"{a.depth} × {a.width:,}",
            f"{a.vocabulary:,}",
            _gb(2 * a.parameters),
        ]
        sizes += [_gb(_memory(a, "last")), _gb(_memory(a, "all")), _gb(_memory(a, "all", PROCESSES))]
        rows.append(f"| {name} | {' | '.join(sizes)} |")
    return "\n".join(rows)


def _memory(architecture: Architecture, layers: Literal["last", "all"], processes: int = 1) -> float:
    options = Options(layers=layers, shard_classes=processes > 1)
    return memory(architecture, sizes_of(architecture, options, (TRAIN_TOKENS, VALIDATION_TOKENS), processes=processes))


def _gb(size: float) -> str:
    return f"{size / 1e9:,.0f} GB" if size >= 1e10 else f"{size / 1e9:,.1f} GB"


def kinds_table() -> str:
    """A row a kind of token."""
    return "\n".join(["| kind | what it is |", "|---|---|", *(f"| {name} | {text} |" for name, text in KINDS.items())])


def contexts_table() -> str:
    """A row a metric of contexts."""
    rows = ["| id | definition | toward collapse | ideal | version | reference |", "|---|---|---|---|---|---|"]
    for m in CONTEXT_METRICS.values():
        cells = (
            f"`{m.id}`",
            m.formula.replace("|", "\\|"),
            m.direction or "–",
            m.ideal_text,
            str(m.version),
            m.reference,
        )
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows)


def outcomes_table() -> str:
    """A row an outcome."""
    rows = (f"| `{name}` | {'low' if one.better < 0 else 'high'} | {one.meaning} |" for name, one in OUTCOMES.items())
    further = f"| `{ON}NAME` | low | loss on the corpus NAME of `--on`, in bits per byte of its validation text |"
    return "\n".join(["| outcome | a good model's is | what it is |", "|---|---|---|", *rows, further])


def interventions_table() -> str:
    """A row an intervention: everything the catalogue says of it."""
    rows = ["| dose | what it does | penalty R | must move | cost of a step | source |", "|---|---|---|---|---|---|"]
    for one in INTERVENTIONS.values():
        dose = f"`{one.name}:±…`" if one.signs == "both" else f"`{one.name}:…`"
        moves = one.must_move.replace(one.primary, f"`{one.primary}`") if one.primary else one.must_move
        cells = (dose, one.words, one.formula.replace("|", "\\|"), moves, one.cost, one.source)
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows)


def options_table(*classes: type) -> str:
    """Return a row for each option of a command, from its declaration."""
    rows = ["| option | default | what it does |", "|---|---|---|"]
    for option in (option for cls in classes for option in options_of(cls)):
        if not option.shown.hidden:
            is_flag = isinstance(option.default, bool) or option.default in (None, (), MISSING)
            default = "–" if is_flag else f"`{option.default}`"
            rows.append(f"| `{option.flag}` | {default} | {option.help.replace('|', chr(92) + '|')} |")
    return "\n".join(rows)


TABLES: dict[Path, dict[str, Callable[[], str]]] = {
    ROOT / "docs" / "api.md": {"reference": reference},
    **{ROOT / "docs" / f"notebook_{name}.md": {"notebook": partial(page, name)} for name in NAMES},
    ROOT / "docs" / "configuration.md": {
        "options of measure": partial(options_table, Options, Running),
        "options of train": partial(options_table, Settings),
        "options of corpus build": partial(options_table, Recipe, Reading),
    },
    ROOT / "docs" / "files.md": FILE_TABLES,
    ROOT / "README.md": {"catalogue": short_table},
    ROOT / "docs" / "metrics.md": {"catalogue": full_table},
    ROOT / "docs" / "contexts.md": {"contexts": contexts_table},
    ROOT / "docs" / "tokens.md": {"kinds": kinds_table, "outcomes": outcomes_table},
    ROOT / "docs" / "interventions.md": {"interventions": interventions_table},
    ROOT / "docs" / "statistics.md": {"error rates": verdict_table, "coverage": interval_table},
    ROOT / "docs" / "scale.md": {"sizes": sizes_table},
}


def current(path: Path) -> str:
    """The file's text with every marked table made again."""
    text = path.read_text()
    for name, table in TABLES[path].items():
        begin, end = f"<!-- {name}: generated by `make docs` -->", f"<!-- end of {name} -->"
        before, rest = text.split(begin)
        text = f"{before}{begin}\n{table()}\n{end}{rest.split(end)[1]}"
    return text


def main() -> int:
    """Write what has changed, or say what would."""
    stale = [path for path in TABLES if current(path) != path.read_text()]
    if "--check" in sys.argv[1:]:
        for path in stale:
            print(f"{path.relative_to(ROOT)}: a table is not current; run `make docs`.", file=sys.stderr)
        return 1 if stale else 0
    for path in stale:
        path.write_text(current(path))
    return 0


if __name__ == "__main__":
    sys.exit(main())
