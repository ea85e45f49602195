"""The collectors of a measurement, in the order in which they get a layer: later ones use what earlier ones
leave on the batch. Adding one is adding a file and its entry here."""

from collapselab.measurement.collector import Collector
from collapselab.measurement.collectors.contexts import ContextMoments
from collapselab.measurement.collectors.curvature import Curvature
from collapselab.measurement.collectors.decisions import AgreementMatrix, CentreLosses, NearestCentres
from collapselab.measurement.collectors.detection import Detection
from collapselab.measurement.collectors.moments import HalfSample, Moments
from collapselab.measurement.collectors.push import Push
from collapselab.measurement.collectors.scores import FirstFeatures, TokenScores

COLLECTORS: list[type[Collector]] = [
    Moments, HalfSample, ContextMoments, Curvature, FirstFeatures, TokenScores, Detection, NearestCentres,
    AgreementMatrix, CentreLosses, Push,
]  # fmt: skip
