"""The REST API: who may ask, what they may ask for, and what they are told. `server` starts it; the rest is imported
only then, since its libraries cost half a second."""
