"""The decisions: pure functions of state and `now`. No await, no clock, no random, no driver."""
