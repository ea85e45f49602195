"""Tensors in, numbers out. Knows no model, no corpus, and of files only how tensors are stored.

features, labels ─ batch ─▶ moments ──┬─▶ decisions ─┐
                                      └─▶ geometry ◀─┘ (pairs) ─▶ metrics

catalogue.py           METRICS and CONTEXT_METRICS, read from metrics.toml; imports no torch
batch.py               a batch of features and labels, checked
moments.py             ClassMoments: count, mean and scatter of every class, merged, saved, loaded
decisions.py           NearestCentre, and matrices of scores;  centre_loss.py: its loss
output_curvature.py    OutputCurvature: how the loss curves in the output layer, from some tokens
pairs.py               statistics over all pairs of classes, through points.py and pair_sweep.py
geometry.py            quantities that several metrics share;  metrics.py: the metrics, and collapse_metrics
contexts.py            contexts and their next tokens, and their metrics
vectors.py, threads.py, devices.py, storage.py   rows, threads, devices and files
"""
