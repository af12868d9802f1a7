"""The demonstration, with a broker of its own."""
