"""Which architecture, which vector, which output layer."""
