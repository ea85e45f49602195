"""`make bench`: our time beside the baseline's and the limit's, as ratios within one run."""
