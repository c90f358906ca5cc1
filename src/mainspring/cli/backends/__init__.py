"""What a command talks to: a scheduler behind a store, or one behind a server."""
