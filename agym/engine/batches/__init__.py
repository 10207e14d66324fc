"""From rows of the slot table to what the caller gets."""
