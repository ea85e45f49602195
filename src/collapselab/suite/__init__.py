"""Many models: one recipe, one folder with every run, two tables.

recipe.py      YAML → Suite, through recipe_text.py (values with their lines), recipe_sections.py, arms.py (its parts);
               schema.py: the same for an editor;  model_entries.py: models in place of runs
corpora.py     what is known of a suite's corpora, and building them
plan.py        Suite × corpora → one Entry for each run: name, size, cost; `pace` times a few steps.  power.py: what the
               pairs of arms can show
folder.py      SuiteFolder: where everything is on disk, what failed, what is locked
status.py      SuiteFolder × Entry → State: which checkpoints are made and measured, which are missing
job.py         one run: train and measure what is missing; torchrun.py does it in several processes. LaunchRequest
run.py         the verbs: plan, run, status, cancel. It gives the missing runs to a launcher; the same by a suite's name
launchers/     where runs are performed: local (processes of this machine, worker.py), slurm (a cluster)
collect.py     the folders of the runs → runs.csv and results.csv
collect_models.py  the same from results of any origin; model_facts.py: what a model's name and a table say of it
show.py        plan and states as tables on a terminal

Data goes one way: recipe → plan → launcher → job → folder of the run → collect. Every step reads the folder first and
does only what is missing, so the same command starts, continues and repeats.
"""
