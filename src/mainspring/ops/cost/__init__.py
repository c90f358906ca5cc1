"""Cost: `bill` prices measured usage, `prices` reads price files, `reference` is the worked example and its sums."""
