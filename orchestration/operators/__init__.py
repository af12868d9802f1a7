"""What operators do: find dead letters, and give commands about them."""
