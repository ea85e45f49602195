"""Write the tables of the documents from the catalogue, the records and the cost model.

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
from collapselab.measurement.cost import Cost, Job, Machine, measuring, pair_flops
from collapselab.models.sizes import Architecture, transformer
from collapselab.records.options import Options, Reading, Recipe, Running
from collapselab.records.outcomes import ON, OUTCOMES
from collapselab.training.interventions import INTERVENTIONS
from collapselab.training.settings import Settings

ROOT = Path(__file__).parents[1]

PEAKS = Machine(
    flops=989e12, single=67e12, double=67e12, bandwidth=3.35e12, network=50e9, host_single=8e12, host_double=4e12
)
"""What the maker of an H100 SXM says of it, a network of 400 Gbit/s, and a server's processors."""
SHARE = 0.4
"""The share of each that is assumed to be reached."""
DEVICE_BYTES = 80e9
MACHINE = Machine(**{name: SHARE * peak for name, peak in vars(PEAKS).items()})
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


def machine_table() -> str:
    """What the hours are made with."""
    rates = {
        "products in the model's precision": f"{MACHINE.flops / 1e12:,.0f} TFLOP/s",
        "products in float32": f"{MACHINE.single / 1e12:,.0f} TFLOP/s",
        "products in float64": f"{MACHINE.double / 1e12:,.0f} TFLOP/s",
        "both on the host": f"{MACHINE.host_single / 1e12:,.1f} and {MACHINE.host_double / 1e12:,.1f} TFLOP/s",
        "memory": f"{MACHINE.bandwidth / 1e12:,.1f} TB/s, {DEVICE_BYTES / 1e9:,.0f} GB",
        "network": f"{MACHINE.network / 1e9:,.0f} GB/s",
    }
    return "\n".join(
        ["| of one process | assumed |", "|---|---|", *(f"| {what} | {how} |" for what, how in rates.items())]
    )


def sizes_table() -> str:
    """A row a model: what it is and what its moments are."""
    rows = [
        "| model | parameters | depth × width | classes | weights | moments, last layer | moments, all layers |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, (a, _) in LADDER.items():
        last, every = (_cost(a, layers).memory for layers in _LAYERS)
        sizes = (f"{a.parameters / 1e9:,.2f}·10⁹", f"{a.depth} × {a.width:,}", f"{a.vocabulary:,}")
        rows.append(f"| {name} | {' | '.join((*sizes, _gb(last.model), _gb(last.moments), _gb(every.moments)))} |")
    return "\n".join(rows)


def cost_table(layers: Literal["last", "all"], processes: int) -> str:
    """A row a model: memory and time of measuring it."""
    parts = ("forward", "collecting", "decisions", "catalogue", "network")
    rows = [
        f"| model | memory of a process | fits | on the host | received | {' | '.join(parts)} | time |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name, (a, _) in LADDER.items():
        cost = _cost(a, layers, processes)
        seconds = cost.seconds(MACHINE)
        cells = [_gb(cost.memory.peak), "yes" if cost.memory.peak <= DEVICE_BYTES else "no", _gb(cost.memory.host)]
        cells += [_gb(cost.received), *(_time(seconds[part]) for part in parts), _time(sum(seconds.values()))]
        rows.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(rows)


def pairs_table() -> str:
    """A row a number of classes: one sweep over their pairs, of the widest of the models with a large vocabulary."""
    dim = LADDER["Gemma 3 27B"][0].width
    rows = [f"| kept classes | operations, {dim:,} dimensions | on the device | on the host |", "|---|---|---|---|"]
    for kept in (16384, 32768, 65536, 131072, 262144):
        flops = pair_flops(kept, dim)
        rows.append(
            f"| {kept:,} | {_count(flops)} | {_time(flops / MACHINE.single)} | {_time(flops / MACHINE.host_single)} |"
        )
    return "\n".join(rows)


_LAYERS: tuple[Literal["last"], Literal["all"]] = ("last", "all")


def _cost(architecture: Architecture, layers: Literal["last", "all"], processes: int = 1) -> Cost:
    options = Options(layers=layers, shard_classes=processes > 1)
    return measuring(architecture, Job(TRAIN_TOKENS, VALIDATION_TOKENS, options, processes=processes, device="cuda"))


def _gb(size: float) -> str:
    return "–" if not size else f"{size / 1e9:,.0f} GB" if size >= 1e10 else f"{size / 1e9:,.1f} GB"


def _count(number: float) -> str:
    mantissa, exponent = f"{number:.1e}".split("e+")
    return f"{mantissa}·10{str(int(exponent)).translate(str.maketrans('0123456789', '⁰¹²³⁴⁵⁶⁷⁸⁹'))}"


def _time(seconds: float) -> str:
    for size, unit in ((3600.0, "h"), (60.0, "min")):
        if seconds >= size:
            return f"{seconds / size:,.0f} {unit}" if seconds >= 10 * size else f"{seconds / size:,.1f} {unit}"
    return "–" if not seconds else f"{seconds:,.0f} s" if seconds >= 1 else "< 1 s"


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
    ROOT / "docs" / "scale.md": {
        "machine": machine_table,
        "sizes": sizes_table,
        "last layer": lambda: cost_table("last", 1),
        "all layers": lambda: cost_table("all", 1),
        "all layers, sharded": lambda: cost_table("all", PROCESSES),
        "pairs": pairs_table,
    },
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
