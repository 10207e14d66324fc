"""The process backend: worker processes, and the memory and channels shared with them."""
