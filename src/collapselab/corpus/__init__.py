"""Text in, blocks of token ids on disk out."""
