"""`uniform`: rows of the output layer spread evenly over all directions.

    R = pair mean of −log‖û_i − û_j‖,        û_c = (w_c − w̄) / ‖w_c − w̄‖

over rows drawn at every step among the classes seen so far, at most 512; w̄ is their mean. Free of scale; distances
below 0.01 count as 0.01, so it is bounded. `uniform_means` is the same of class means.
"""

from collapselab.training.interventions.penalty import HeadRows, Intervention, Penalty, Step, closed_form

ROWS = 512


@closed_form
def penalty(step: Step) -> Penalty | None:
    """The energy of the drawn rows; all other rows have no gradient."""
    from collapselab.training.interventions.unit_rows import log_energy

    seen = step.kept.setdefault("seen", step.classes.counts.new_zeros(step.classes.vocabulary))
    seen += step.total(step.classes.counts)
    classes = seen.nonzero().squeeze(1)
    if len(classes) < 2:
        return None
    chosen = classes[step.drawn(len(classes), step.pair_rows(ROWS))]
    rows = step.head.weight.detach()[chosen].to(step.features.dtype)
    value, gradient = log_energy(rows - rows.mean(0))
    return Penalty(value, of_head=HeadRows(chosen, gradient - gradient.mean(0)))


UNIFORM = Intervention(
    "uniform",
    "Spreads the rows of the output layer evenly over all directions (+), or clusters them (−).",
    f"pair mean of −log‖û_i − û_j‖ over {ROWS} rows w_c − w̄ of the output layer, fewer in small models",
    "MHE, arXiv:1805.09298; HUG, arXiv:2303.06484",
    "head_logdist_std",
    "both",
    penalty,
    dose_over="head",
    plus="falls",
    cost="n²·D for n ≤ 512 rows",
    blind=True,
)
