"""The commands that show what pages show: the fleet, what became of runs, what is ahead."""
