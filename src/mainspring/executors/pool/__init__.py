"""Functions in processes that can be killed."""
