"""Redis: one server, Sentinels or a cluster, and one pipelined connection per event loop."""
