"""The engine from inside: hops between rooms, the PostgreSQL store under pressure, the cost of tracing."""
