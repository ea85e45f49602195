"""Many models: one recipe, one folder with every run, two tables.

recipe.py      YAML → Suite, through sections.py (values with their lines, models of the sections, schema)
plan.py        Suite → its corpora, one entry for each run or model (name, size, cost), and what its pairs can show
folder.py      SuiteFolder: where everything is on disk, what failed, what is locked
status.py      folder × entry → State: what is made, measured, missing; tables on a terminal
job.py         one run: train and measure what is missing, in one process or under torchrun
run.py         the verbs: plan, run, status, cancel.  launchers/: where runs are performed
collect.py     the folders of the runs → runs.csv and results.csv.  collect_models.py: results of any origin → the same

Data goes one way: recipe → plan → launcher → job → folder of the run → collect. Every step reads the folder first and
does only what is missing, so the same command starts, continues and repeats.
"""
