"""Places where environments live, one file each."""
