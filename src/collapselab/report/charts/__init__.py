"""The parts that figures are made of.

panels.py has `Panel` and `Figure`, the shape that every figure has, and the channels that all share (colour is width,
size is depth, shape is training); axes.py the axes of a metric and the level of shuffled labels; style.py colours and
type.
"""
