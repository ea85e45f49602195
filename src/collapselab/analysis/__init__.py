"""Tables in, statements with intervals out."""
