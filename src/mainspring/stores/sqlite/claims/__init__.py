"""Claims and what decides them."""
