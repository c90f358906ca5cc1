"""The end of attempts and what it sets off; recovery and cleaning."""
