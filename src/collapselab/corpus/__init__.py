"""Text in, blocks of token ids on disk out.

    sources.py      SOURCES: where documents come from, by name; `open_source`: a name → streams of documents
    readers.py      files of text, JSON lines and Parquet → documents; what is not text is refused
    storyworld/     an embedded source: small English stories, generated from a seed
    markov.py       another: a chain whose next-token distributions are known;  hashing.py: its draws, and all orders
    tokenizer.py    a tokenizer trained on the documents, or loaded from a folder, a GGUF file or the hub
    packing.py      token ids of documents → blocks of one length, counted on the way
    build.py        `build_corpus`: source × Recipe → the folder of a corpus, whole or not at all
    blocks.py       `Corpus`, `Split`: an opened corpus, its blocks, and which positions are samples
    token_kinds.py  what kind of text each token is: a word, a part of one, a mark
    describe.py     the numbers and the figure of `collapselab corpus show`;  corpus_views.py: those of a notebook

Data goes one way: source → documents → tokenizer → packer → files. What is known of a corpus is its `CorpusRecord`
(`records/corpus.py`), written by build.py and verified whenever a corpus is opened.
"""
