"""Model × corpus → Result: how far any causal language model has collapsed, in one pass over each split.

    measure.py             `measure`: each model opened, then plan, pass, catalogue, pass, result
    open_model.py          a name or a module → a loaded model (model.py), or its finished result;
                           compare_tokenizers.py and model_warnings.py say what to know about it
    model_corpus.py        text → the corpus of a model's own tokenizer, kept in the user's cache
    plan.py                what is asked, and what is known before the model runs: sample.py (blocks, positions, null
                           labels), classes.py (rows, bins), cost.py and memory.py (whether it fits)
    forward_pass.py        the model runs on every block; its features are added to sums.py, layer by layer
    curvature.py           the tokens of a pass that the flatness of the loss is computed from
    nearest_centre.py      NC4: the output layer beside the nearest centre of every layer
    centre_loss.py         the nearest centre as a prediction: its loss beside the model's
    catalogue.py           sums → the metrics of every layer, split and bin, and their rows
    find_contexts.py       which contexts, the last n tokens, are measured;  context_gap.py, context_rows.py: their rows
    deciders.py            the table `deciders`: who agrees with whom
    class_table.py         the table `classes`;  outcomes.py (token_scores.py, temperature.py, further_scores.py) what
                           single tokens, replaced inputs and further corpora say beside the mean loss
    tables.py              FILLERS: further tables that are filled while a model is measured
    half_sample.py         whether values still change with the number of tokens
    similarity.py          `similarity`: class means of several measurements compared, from their kept moments
    add_metrics.py         metrics that came after a measurement, from its kept moments
    bootstrap.py           intervals from the sums of groups of blocks
    result_facts.py        the facts of a result;  show.py prints both
    resume.py              sums on disk, to continue from;  distributed.py several processes

Blocks go through the model to sums; those of the training split to the catalogue and to centres; the validation split
is decided by these centres; all values end in a `Result` (`records/measurement.py`).
"""
