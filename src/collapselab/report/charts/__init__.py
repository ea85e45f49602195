"""How we draw: panels, axes, colours."""
