"""Tensors in, numbers out. Knows no model, no corpus, and of files only how tensors are stored.

    features, labels ─ batch ─▶ moments (tally, parts) ─┬─▶ decisions ─┐
                                                        └─▶ geometry ◀─┘ (pairs) ─▶ metrics

    batch.py      checks a batch of features and labels; what is refused, and what is skipped
    parts.py      cuts a batch into parts, and computes what does not depend on the classes
    tally.py      count, sum and scatter of every class; the update formulas
    moments.py    ClassMoments: the tally of a stream, which can be merged, saved and loaded
    decisions.py  Decider: the output layer's choice and the nearest class mean, for each token
    centre_loss.py  CentreScores: the nearest centre as a prediction, and its loss beside the model's
    flatness.py   OutputCurvature: how the loss bends in the output layer, from some tokens
    vectors.py    class means and output rows as float64, some at a time
    pairs.py      statistics over all pairs of classes (cloud: the points, tiles, pair_sums)
    geometry.py   quantities that several metrics share, each computed once
    variability.py, spectrum.py, frequency.py   metrics of variance within classes, of the features' covariance, and
                  of how often a class occurs
    metrics.py    METRICS, the catalogue, and collapse_metrics, which computes it
    similarity.py CKA of the class means of two moments
    scale.py      lengths and squares of very large and very small numbers
    storage.py    tensors on disk with a checksum

A module imports only from modules above it in this order: scale, vectors, batch, parts, tally, storage, moments,
decisions, fit_scale, centre_loss, flatness, pair_sums, cloud, tiles, pairs, geometry, variability,
spectrum, frequency, metrics; similarity after moments.
"""
