"""Tables in, statements with intervals out.

The tables of a suite become `Models` (models.py), one row for every run and checkpoint. Each statement is one file and
one entry of `STATEMENTS` (statements.py): relate, controls, trends, properties, effects, doses, attribution, phases and
diagnosis. It makes the rows of a table from the models, and sentences from the rows. analyze.py loops over the entries,
stored.py writes and reads the result, plot_analysis.py draws it in a notebook. tokens.py ranks single tokens.

Shared parts: subsets.py (which models are compared), resampling.py (permutations), intervals.py, attainable.py (how
many models a test needs), families.py (tests corrected together), related.py (metrics and their direction),
verdict.py (verdicts and reasons as codes), words.py (their words). Interventions: arms.py (runs and their controls),
lost_runs.py, paired.py (tests of paired differences), learning_speed.py (gap and equal training loss), registered.py
and effect_words.py. multiverse.py is the joint test of controls, trend_test.py that of trends.
"""
