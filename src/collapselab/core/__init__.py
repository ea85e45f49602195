"""Tensors in, numbers out: class moments, pair geometry, decisions and the catalogue of metrics."""
