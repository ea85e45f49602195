"""Simulated tables for every verdict and interval of the analysis: nothing to find, or something planted.

A file has the simulations of one statement as `VERDICTS` and `INTERVALS`, by name; to add one is to add its file here.
`SILENT` are the answers that claim nothing, so that they have no rate of false claims.
"""

from simulations import arms, attribution, concordance, controls, diagnosis, pages, relations, trends
from simulations.entry import Claim, Interval

VERDICTS: dict[str, Claim] = {
    **relations.VERDICTS,
    **controls.VERDICTS,
    **trends.VERDICTS,
    **arms.VERDICTS,
    **concordance.VERDICTS,
    **attribution.VERDICTS,
    **diagnosis.VERDICTS,
    **pages.VERDICTS,
}
INTERVALS: dict[str, Interval] = {
    **relations.INTERVALS,
    **arms.INTERVALS,
    **attribution.INTERVALS,
}
SILENT = {
    "not shown": "tested and not significant, which is not absent",
    "description": "a number without a test",
    "too few runs": "no test could be made",
    "cannot be attributed": "metrics that move together are not told apart",
    "undecided": "neither shown to be there nor shown to be small",
    "did not reach": "nothing is said of the outcome; how often that is wrong is the power of “reached”",
}
