"""Disaster drills: `checklist` records what passed, `site` is what is drilled, `local` builds one on this machine,
`traffic` submits and compares, `drill` plays the steps, `archive` keeps the reports and the dates."""
