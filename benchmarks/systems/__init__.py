"""What is compared: agym, other runners, and loops without a runner."""
