"""Every kind of file in a folder of ours, typed, with its one reader and one writer.

    corpus.py         corpus.json
    run.py            RunFolder and Checkpoint: where a run's files are; run.json, training.json, log.jsonl
    options.py        the options of measurements and corpora;  profile.py: the headline values of one result
    measurement.py    Result, Results: rows and facts of finished measurements, written, read and shown in a notebook
    facts.py          Facts: every fact of a result, with its type and its meaning
    result_folder.py  a folder of results, one file for each model; `load_results`: those of any folder
    suite.py          the records in a suite's folder
    outcomes.py       what metrics are related to, by name, with its direction
    table.py          tables as CSV and Parquet;  tables.py: those of a suite by name and column
    published.py      tables of other people;  scores.py: scores that the user brings

Records of earlier versions open, since a field that is added later has a default.
"""
