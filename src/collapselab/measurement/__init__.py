"""Model × corpus → Result: how far any causal language model has collapsed, in one pass over each split.

    measure.py         `measure`: each model with its corpus; open_model.py: a loaded model (model.py), or its result
    measure_model.py   one model: plan (plan.py), both passes, values, result
    forward_pass.py    the loop: for each batch (batch.py) and layer, every collector
    collector.py       the protocol of a collector; collectors/ has one a file
    sample.py          which blocks, positions and classes;  find_contexts.py: which contexts
    catalogue.py       values → rows;  class_table.py, outcomes.py, further_scores.py, result_facts.py: what else
    resume.py          collectors on disk;  distributed.py: processes and shards;  bootstrap.py: resampled collectors
    memory.py          what a measurement needs, and whether it fits

The other modules open texts and models, print results and compare them.
"""
