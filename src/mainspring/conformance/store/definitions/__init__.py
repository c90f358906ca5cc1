"""What a store keeps of jobs, their firings and plans."""
