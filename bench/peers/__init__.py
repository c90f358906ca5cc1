"""The embedded peers, each at the best settings that its documentation offers, in a virtualenv of their own."""
