"""The chores of a fleet, which any process may do under a lease: recovery, retention, relay, alerts."""
