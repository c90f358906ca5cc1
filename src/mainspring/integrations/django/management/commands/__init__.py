"""One command, which has all of Mainspring's."""
