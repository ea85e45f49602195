"""Tensors in, numbers out. Knows no model, no corpus, and of files only how tensors are stored.

    features, labels ─ batch ─▶ moments (tally, parts) ─┬─▶ decisions ─┐
                                                        └─▶ geometry ◀─┘ (pairs) ─▶ metrics

    batch.py, parts.py     a batch of features and labels, checked; its parts;  arrivals.py: counts of its labels
    tally.py, moments.py   the update formulas of count, sum and scatter; ClassMoments, merged, saved and loaded
    decisions.py           Decider: the output layer's choice and the nearest class mean;  centre_loss.py: its loss
    output_curvature.py    OutputCurvature: how the loss bends in the output layer, from some tokens
    pairs.py               statistics over all pairs of classes, through cloud, tiles, pair_sums and pair_sweep.py
    geometry.py            quantities that several metrics share;  variability.py, spectrum.py, frequency.py: metrics
    needs.py, metrics.py   what a metric needs, or why it has no value; METRICS, the catalogue, and collapse_metrics
    class_rows.py          the values of single classes;  similarity.py: CKA of the class means of two moments
    contexts.py            contexts and their next tokens;  context_metrics.py: CONTEXT_METRICS, their catalogue
    vectors.py             rows of a table as float64;  gram.py: rows times themselves
    threads.py             a thread for each part of some work;  storage.py: tensors on disk

A module imports only from modules above it in this order: threads, vectors, gram, batch, arrivals, parts, tally,
storage, moments, strips, decisions, fit_scale, centre_loss, output_curvature, pair_sums, cloud, tiles, pair_sweep,
pairs, geometry, variability, spectrum, frequency, metrics; similarity after moments.
"""
