"""Where runs are done: this machine, a SLURM cluster."""
