"""The end of attempts and what it sets off; recovery of what was lost."""
