"""Planning: who leads, what fires, and what a broker is told."""
