"""How a store accepts runs, lists them and lets them wait."""
