"""Many models: a recipe's runs planned, trained, measured, followed and gathered in one table."""
