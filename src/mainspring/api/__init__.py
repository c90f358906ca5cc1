"""The REST API: authentication, endpoints, answers. `server` starts it; the rest is imported
only then, since its libraries cost half a second."""
