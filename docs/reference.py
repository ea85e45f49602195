"""The reference of the Python interface: call, summary and example of every public name, in the order of work."""

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
        "Settings", "train", "sample", "CollapseMonitor", "CollapseCallback", "CollapseLightningCallback",
        "CollapseMetric", "INTERVENTIONS", "HEADS", "OPTIMIZERS",
    ],
    "What a model is like": [
        "measure", "Options", "Running", "load_results", "Result", "Results", "Row", "token_table",
        "TokenTable", "compare", "similarity",
    ],
    "Many models": [
        "shipped_recipes", "load_suite", "Suite", "suite_plan", "run_suite",
        "suite_status", "collect_suite", "cancel_suite", "collect_models",
    ],
    "What they say": ["import_published", "analyze", "Analysis", "report", "publish", "run_demo"],
}  # fmt: skip
"""Every public name, in the order of work: an example may use what those before it have made."""

CONSTANTS = {
    "METRICS": "The [catalogue](metrics.md): a dict from the id of a metric to its entry.",
    "INTERVENTIONS": "The [penalties](interventions.md) that move collapse, by name.",
    "HEADS": "The output layers that can be trained, by name: `Settings(head=…)`.",
    "OPTIMIZERS": "The optimisers, by name: `Settings(optimizer=…)`.",
}
"""Public names that are dicts, and what is in them."""


RECEIVED = ("ClassMoments", "Decisions", "Measurement", "Result", "Results", "Row", "TokenTable", "Suite", "Analysis")
"""Classes whose objects the package makes, so that nobody calls them."""
BRIEF = (
    "Decisions", "Measurement", "Row", "Suite", "shipped_recipes", "cancel_suite",
    "Options", "Settings", "Recipe",
)  # fmt: skip
"""Names whose example teaches nothing that the others do not show; the page leaves it out."""
CONFIGURED = ("Settings", "Options", "Running", "Recipe")
"""Classes whose fields are the options of a command."""


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
    paragraphs = re.split(r"\n\n+", inspect.getdoc(found) or "")
    lines = [f"`{_signature(name, found)}`", paragraphs[0]] if name not in RECEIVED else [paragraphs[0]]
    examples = [f"```pycon\n{_without_imports(block)}\n```" for block in paragraphs if block.lstrip().startswith(">>>")]
    lines += (
        []
        if name in BRIEF
        else examples
        or [f"```text\n{inspect.cleandoc(block)}\n```" for block in paragraphs if block.startswith("    ")]
    )
    members = [f"`{member}`" for member in _members(found)] if inspect.isclass(found) and name not in BRIEF else []
    lines += [f"Members: {', '.join(members)}."] if members else []
    return "\n\n".join([f"### {name}", *lines])


def _without_imports(block: str) -> str:
    return "\n".join(
        line for line in block.splitlines() if not re.match(r">>> (import torch$|from collapselab )", line)
    )


def _signature(name: str, found: Any) -> str:
    """The call; where settings are the fields of a class, `configuration.md` has them."""
    try:
        signature = inspect.signature(found)
    except ValueError:
        return f"{name}(…)"
    if name in CONFIGURED:
        return f"{name}(*, …)"
    parts: list[str] = []
    for parameter in signature.parameters.values():
        if parameter.kind is parameter.KEYWORD_ONLY and "*" not in parts:
            parts.append("*")
        text = "**" if parameter.kind is parameter.VAR_KEYWORD else ""
        text = "*" if parameter.kind is parameter.VAR_POSITIONAL else text
        default = "" if parameter.default is parameter.empty else f"={_value(parameter.default)}"
        parts.append(f"{text}{parameter.name}{default}")
    return f"{name}({', '.join(parts)})"


def _value(default: object) -> str:
    text = repr(default)
    return "…" if "<" in text or " object at " in text else text


def _members(kind: type) -> list[str]:
    """Public methods and properties that the class itself documents; those of a framework's base class are its own."""
    names = []
    for name, member in vars(kind).items():
        is_property = isinstance(member, property)
        own = member.fget if is_property else getattr(member, "__func__", member)
        if callable(own) and inspect.getdoc(own) and not name.startswith(("_", "model_", "on_")):
            names.append(name if is_property else f"{name}()")
    return names
