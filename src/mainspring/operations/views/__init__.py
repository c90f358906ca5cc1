"""What pages show of a whole namespace: queues, tallies, errors, load, relations and actions on many."""
