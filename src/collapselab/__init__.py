"""collapselab: a laboratory for neural collapse in causal language models.

The public names are listed in `__init__.pyi`. Each is imported when it is first used, so that the command line and its
completion do not wait for torch.
"""

from importlib import import_module

__version__ = "0.2.0"
with open(f"{__file__}i", encoding="utf-8") as _stub:
    _HOMES = {words[3]: words[1] for line in _stub if (words := line.split())[:1] == ["from"]}
    """The module of each public name."""
__all__ = ["__version__", *_HOMES]


def __getattr__(name: str) -> object:
    if name == "report":  # a package of that name is here too, which can be called like the function
        return import_module("collapselab.report")
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(_HOMES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
