"""Model × corpus → Result: how far any causal language model has collapsed, in one pass over each split.

    measure.py         `measure`: each model opened, then measured by measure_model.py: plan, pass, values, pass, result
    open_model.py      a name or a module → a loaded model (model.py) or its finished result; compare_tokenizers.py,
                       model_warnings.py: what to know about it;  model_corpus.py: text in its own tokens
    plan.py            what is known before the model runs: sample.py (blocks, positions, null labels), classes.py
                       (which classes count), cost.py and memory.py (whether it fits)
    forward_pass.py    the model runs on every block; its features are added to sums.py, layer by layer
    nearest_centre.py  NC4 at every layer, and deciders;  centre_loss.py, curvature.py, push.py: what else a pass gives
    catalogue.py       sums → the metrics of every layer, split and bin, and their rows
    find_contexts.py   which contexts, the last n tokens, are measured;  context_gap.py, context_rows.py: their rows
    outcomes.py        token_scores.py, temperature.py, further_scores.py: outcomes beside the mean loss
    tables.py          the table `classes`, and FILLERS: further tables that are filled while a model is measured
    half_sample.py     whether values still change with more tokens;  bootstrap.py: intervals from groups of blocks
    result_facts.py    facts of a result;  show.py, show_tables.py, null_words.py print it;  report_to.py: to a tracker
    compare_results.py two results side by side;  add_metrics.py, similarity.py: from kept moments;  estimate.py: cost
    resume.py          sums on disk, to continue from;  distributed.py: several processes

Blocks go to sums; those of the training split to the catalogue and to centres, which decide the validation split.
"""
