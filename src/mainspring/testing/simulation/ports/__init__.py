"""The ports of a simulated process: `wire` leads to the real store and fails, `scribe` records each call; `broker` and
`lease` are unreliable, too."""
