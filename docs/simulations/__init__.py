"""Simulated tables for every verdict and interval of the analysis: nothing to find, or something planted.

A file has the simulations of one statement as `VERDICTS` and `INTERVALS`, by name; to add one is to add its file here.
`SILENT` are the answers that claim nothing, so that they have no rate of false claims.
"""

from simulations import arms, carriers, controls, diagnosis, phases, relations, trends
from simulations.entry import Interval, Verdict

VERDICTS: dict[str, Verdict] = {
    **relations.VERDICTS,
    **controls.VERDICTS,
    **trends.VERDICTS,
    **arms.VERDICTS,
    **carriers.VERDICTS,
    **phases.VERDICTS,
    **diagnosis.VERDICTS,
}
INTERVALS: dict[str, Interval] = {
    **relations.INTERVALS,
    **controls.INTERVALS,
    **arms.INTERVALS,
    **carriers.INTERVALS,
    **phases.INTERVALS,
}
SILENT = {
    "not shown": "tested and not significant, which is not absent",
    "cannot tell": "no test could be made",
    "description": "a number without a test",
    "undecided": "neither shown to be there nor shown to be small",
    "did not reach": "nothing is said of the outcome; how often that is wrong is the power of “reached”",
    "unclear": "intervals overlap",
    "no break": "none is found, which is not absent; what is missed is the power of “a break”",
    "no": "the rule of thumb does not apply; what is missed is the power of the signature",
    "unknown": "not measured",
}
