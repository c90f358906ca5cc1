"""The commands that show what pages show: queues, errors, the load ahead."""
