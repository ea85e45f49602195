"""Model × corpus → rows: the collapse of any causal language model, in one pass over each split."""

from collapselab.measure.result import Result, Results
from collapselab.measure.stage import measure

__all__ = ["Result", "Results", "measure"]
