"""Model × corpus → Result: how far any causal language model has collapsed, in one pass over each split.

    measure.py         `measure`: each model with its corpus (model_corpus.py)
    open_model.py      a name → a loaded model (model.py), or its result
    measure_model.py   one model: plan (plan.py), whether it fits into memory, a pass over each split, result;
                       in a pass, for each batch (batch.py) and layer, every collector
    collector.py       the class of a collector, and all of a pass; collectors/ has them
    sample.py          which blocks, positions, classes and contexts
    result.py          values → rows, tables, outcomes and facts
    resume.py          collectors on disk;  distributed.py: processes and shards;  bootstrap.py: resampled collectors

The other modules print results, log and compare them.
"""
