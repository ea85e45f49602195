"""Every kind of file in a folder of ours, typed, with its one reader and one writer.

    corpus.py         corpus.json
    run.py            RunFolder and Checkpoint: where a run's files are;  run_documents.py: run.json, training.json, log
    options.py        Options: what decides the numbers of a measurement
    result_folder.py  a folder of results, one file for each model; `load_results`: those of any folder
    result_views.py   tables and charts of results in a notebook
    measurement.py    Key, Result, Results: rows and facts of finished measurements, written and read
    facts.py          Facts: every fact of a result, with its type and its meaning
    suite.py          the records in a suite's folder
    outcomes.py       what metrics are related to, by name, with its direction
    tables.py         the tables of a suite by name and column;  table.py reads, checks and writes them as CSV,
                      column_table.py those of many rows as Parquet
    published.py      tables of other people;  scores.py: scores that the user brings

Training and measuring write records; suites, analysis and report read them. A field that is added later has a default,
so that records of earlier versions open.
"""
