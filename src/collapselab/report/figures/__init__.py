"""What we draw: one file a figure."""
