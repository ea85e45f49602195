"""The reference of the Python interface: signature and docstring of every public name, in the order of work."""

import doctest
import inspect
import re
from importlib import import_module
from typing import Any

import collapselab

PUBLIC = {
    "Metrics of your own tensors": [
        "ClassMoments", "NearestCentre", "Decisions", "collapse_metrics", "Measurement", "METRICS",
    ],
    "Text": ["open_source", "Recipe", "build_corpus", "Corpus"],
    "One model": [
        "Settings", "train", "sample", "CollapseCallback", "CollapseMonitor", "CollapseMetric", "INTERVENTIONS",
        "HEADS", "OPTIMIZERS",
    ],
    "What a model is like": [
        "measure", "Options", "Running", "load_results", "Result", "Results", "Row", "token_table",
        "TokenTable", "similarity", "compare",
    ],
    "Many models": [
        "shipped_recipes", "recipe_schema", "load_suite", "Suite", "suite_plan", "suite_script", "run_suite",
        "suite_status", "collect_suite", "cancel_suite", "collect_models",
    ],
    "What they say": ["import_published", "analyze", "Analysis", "report", "publish", "model_card", "run_demo"],
}  # fmt: skip
"""Every public name, in the order of work: an example may use what those before it have made."""

CONSTANTS = {
    "METRICS": "The [catalogue](metrics.md): a dict from the id of a metric to its entry.",
    "INTERVENTIONS": "The [penalties](interventions.md) that move collapse, by name.",
    "HEADS": "The output layers that can be trained, by name: `Settings(head=…)`.",
    "OPTIMIZERS": "The optimisers, by name: `Settings(optimizer=…)`.",
}
"""Public names that are dicts, and what is in them."""


def public_object(name: str) -> Any:
    """What the name stands for; the function, where a package of the same name can be called too."""
    found = getattr(collapselab, name)
    return import_module(f"collapselab.{name}.{name}").__dict__[name] if inspect.ismodule(found) else found


def examples(name: str) -> list[doctest.Example]:
    """The examples in the docstring of a public name."""
    if name in CONSTANTS:
        return []
    return doctest.DocTestParser().get_examples(inspect.getdoc(public_object(name)) or "", name)


def reference() -> str:
    """The body of the page: a section for each group of names."""
    sections = []
    for title, names in PUBLIC.items():
        sections += [f"## {title}", *(_entry(name) for name in names)]
    return "\n\n".join(sections)


def _entry(name: str) -> str:
    if name in CONSTANTS:
        return f"### {name}\n\n{CONSTANTS[name]}"
    found = public_object(name)
    parts = [f"### {name}", f"```text\n{_signature(name, found)}\n```", _markdown(inspect.getdoc(found) or "")]
    if inspect.isclass(found):
        parts += [line for line in [_methods(found)] if line]
    return "\n\n".join(parts)


def _signature(name: str, found: Any) -> str:
    """The call, a line for each argument where it is long; types as the source writes them."""
    try:
        signature = inspect.signature(found)
    except ValueError:
        return name
    parts: list[str] = []
    for parameter in signature.parameters.values():
        if parameter.kind is parameter.KEYWORD_ONLY and "*" not in parts and not any(p[0] == "*" for p in parts):
            parts.append("*")
        text = "" if parameter.kind is not parameter.VAR_POSITIONAL else "*"
        text = "**" if parameter.kind is parameter.VAR_KEYWORD else text
        default = "" if parameter.default is parameter.empty else f"={_value(parameter.default)}"
        parts.append(f"{text}{parameter.name}{default}")
    one_line = f"{name}({', '.join(parts)})"
    return one_line if len(one_line) <= 100 else f"{name}(\n    " + ",\n    ".join(parts) + ",\n)"


def _value(default: object) -> str:
    text = repr(default)
    return "…" if "<" in text or " object at " in text else text


def _methods(kind: type) -> str:
    """Public methods and properties with the first sentence of their docstring."""
    lines = []
    for name, member in vars(kind).items():
        own = member.fget if isinstance(member, property) else getattr(member, "__func__", member)
        text = inspect.getdoc(own) if callable(own) else None
        if name.startswith(("_", "model_")) or not text:
            continue
        call = "" if isinstance(member, property) else "()"
        lines.append(f"- `{name}{call}`: {_cell(text.split(chr(10) * 2)[0])}")
    return "\n".join(lines)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _markdown(text: str) -> str:
    """A docstring as Markdown: examples as Python, indented formulas and trees as they are."""
    blocks = []
    for block in re.split(r"\n\n+", text):
        if block.lstrip().startswith(">>>"):
            blocks.append(f"```pycon\n{block}\n```")
        elif block.startswith("    "):
            blocks.append(f"```text\n{inspect.cleandoc(block)}\n```")
        else:
            blocks.append(block)
    return "\n\n".join(blocks)
