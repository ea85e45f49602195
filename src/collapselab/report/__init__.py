"""Tables in, things to look at out."""
