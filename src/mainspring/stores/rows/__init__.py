"""What both stores do alike: rows and what they are, reads and writes of the same statements in every dialect."""
