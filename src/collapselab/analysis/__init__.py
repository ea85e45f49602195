"""Tables in, statements with intervals out.

The tables of a suite become `Models` (models.py), one row for every run and checkpoint. Each statement is one entry of
`STATEMENTS` (statements.py): relate, controls, trends, properties, effects, doses, attribution and diagnosis are a file
each. It makes the rows of a table from the models, and sentences from the rows. analyze.py loops over the entries,
writes the result and reads it. tokens.py ranks single tokens.

Shared parts: verdict.py turns an estimate into a verdict with a code and a reason, and says which tests are corrected
together; words.py has the words. subsets.py says which models are compared, resampling.py permutes them. arms.py pairs
runs with their controls and paired.py tests the differences.
"""
