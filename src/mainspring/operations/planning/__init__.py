"""What is to come: fire times, load, and what a change of a job, a calendar or a schedule would do."""
