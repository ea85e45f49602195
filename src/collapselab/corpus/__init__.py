"""Corpora: from text to blocks of token ids on disk.

    sources.py      SOURCES, `open_source`: streams of documents by the name of their source
    readers.py      documents of text files, JSON lines and Parquet; other files are refused
    storyworld.py   an embedded source: small English stories, generated from a seed and storyworld.yaml
    markov.py       an embedded source: a Markov chain with known next-token distributions
    tokenizer.py    tokenizers: trained on the documents, or loaded from a folder, a GGUF file or the hub
    build.py        `build_corpus`: tokenises the documents of a source, packs them into blocks, writes the folder
    blocks.py       `Corpus`, `Split`: an opened corpus, its blocks, and which positions are samples
    token_kinds.py  the kind of every token: start of a word, continuation, punctuation, …
    describe.py     the numbers and the figure of `collapselab corpus show`
    hashing.py      the hash behind every order of blocks and every draw of a chain

build.py writes the metadata of a corpus as a `CorpusRecord` (records/corpus.py), which every opening verifies.
"""
