"""Commands that start long-lived processes: `up`, `worker`, `server`."""
