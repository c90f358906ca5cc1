"""The local autoscaler: `fleet` starts worker processes, `autoscaler` decides how many, `simulation` draws a day."""
