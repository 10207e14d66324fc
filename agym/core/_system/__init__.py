"""Platform support: signals, forks, process exit, CPU limits and pickling."""
