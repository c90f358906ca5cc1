"""Which instants of a job fire, when, and within which limits."""
