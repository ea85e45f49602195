"""Tables in, statements with intervals out.

The two tables of a suite become `Models` (models.py), one row for every run and checkpoint, labelled with architecture,
regime (regime.py) and cell. Each statement is one file and one entry of `STATEMENTS` (statements.py): relate.py,
controls.py, trends.py, prediction.py, effects.py, clipping.py, doses.py, instruments.py, phases.py, diagnosis.py. It
makes the rows of a table from the models, and sentences from the rows. analyze.py loops over the entries and collects
the sentences, stored.py writes and reads all of it, plot_analysis.py draws it in a notebook. tokens.py ranks single
tokens, and is no statement.

What statements share: subsets.py (which models are compared, and what is independent), resampling.py (permutations),
intervals.py, attainable.py (how many models a test needs), related.py (metrics, and where each moves as models
collapse), verdict.py (verdicts and reasons as codes, corrections for many tests) and words.py (their words). Parts of
one: relate_words.py, multiverse.py (joint test of controls), trend_test.py, segments.py (of phases), mediation.py (of
instruments). Of interventions: arms.py (runs and their controls), lost_runs.py (runs without outcome or control),
paired.py (tests of paired differences), pace.py (equal training loss, what tokens are worth), registered.py (what was
chosen before the first run) and effect_words.py (sentences).
"""
