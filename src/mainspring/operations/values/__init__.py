"""Between rows, public types and JSON: how each becomes the other."""
