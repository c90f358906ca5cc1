"""The command line: one file per group of commands, thin over the app and the store."""
