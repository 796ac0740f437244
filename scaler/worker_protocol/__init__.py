"""What an agent and its workers say to each other, and how it looks between them."""
