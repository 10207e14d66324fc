"""What the operating system needs of agym."""
