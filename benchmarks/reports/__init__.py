"""Results: records, targets, tables and charts."""
