"""Small English children's stories, generated when they are read: a source that needs no download.

`stories.py` tells them. `plots.py`, `things.py` and `words.py` are its data, in the notation that `notation.py` reads.
"""
