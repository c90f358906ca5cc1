"""What both stores do alike with rows."""
