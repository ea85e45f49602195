"""One model, trained."""
