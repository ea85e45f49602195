"""Every kind of file in a folder of ours, typed, with its one reader and one writer.

    run.py            RunFolder: run.json, checkpoints and their training.json, log, state; the identity of a run
    options.py        Options: what decides the numbers of a measurement
    measurement.py    Key, Result, Results: rows and facts of finished measurements, written and read
    facts.py          Facts: every fact of a result, with its type and its meaning
    suite.py          the records in a suite's folder
    tables.py         runs.csv and results.csv, row by row;  columns.py and csv_file.py read and check cells
    published.py      tables of other people
    versions.py       which definition of a metric a number follows

Training and measuring write records; suites, analysis and report read them. A field that is added later has a default,
so that records of earlier versions open.
"""
