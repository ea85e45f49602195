"""Every noun on disk, typed, with its one reader and one writer."""
