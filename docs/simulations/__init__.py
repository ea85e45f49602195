"""Simulated tables for every verdict and interval of the analysis: nothing to find, or something planted.

A file has the simulations of one statement as `VERDICTS` and `INTERVALS`, by name; to add one is to add its file here.
"""

from simulations import controls, prediction, relations
from simulations.entry import Interval, Verdict

VERDICTS: dict[str, Verdict] = {**relations.VERDICTS, **controls.VERDICTS, **prediction.VERDICTS}
INTERVALS: dict[str, Interval] = {**relations.INTERVALS, **controls.INTERVALS}
