"""The API: submissions over HTTP, and the journeys of a run."""
