"""Tables in, statements with intervals out.

The tables of a suite become `Models` (models.py), one row for every run and checkpoint. Each statement is one entry of
`STATEMENTS` (analyze.py): it makes the rows of a table from the models, and sentences from the rows. analyze.py loops
over the entries, writes the result and reads it. relate.py, controls.py, trends.py, properties.py, effects.py,
attribution.py and curves.py make the rows. tokens.py ranks single tokens.

Shared parts: verdict.py turns an estimate into a verdict with a code and a reason; families.py says which tests are
corrected together; words.py has parts of sentences and those about arms. subsets.py says which models are compared,
resampling.py permutes them. arms.py pairs runs with their controls and paired.py tests the differences.
"""
