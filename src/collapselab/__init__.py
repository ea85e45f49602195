"""collapselab: a laboratory for neural collapse in causal language models."""

from collapselab.core.decisions import Decider, Decisions
from collapselab.core.metrics import METRICS, Measurement, collapse_metrics
from collapselab.core.moments import ClassMoments

__version__ = "0.1.0"
__all__ = ["METRICS", "ClassMoments", "Decider", "Decisions", "Measurement", "__version__", "collapse_metrics"]
