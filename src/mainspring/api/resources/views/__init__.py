"""The endpoints of pages: what a whole namespace shows, and actions on many things at once."""
