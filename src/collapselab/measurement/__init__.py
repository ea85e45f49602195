"""Model × corpus → rows: the collapse of any causal language model, in one pass over each split."""
