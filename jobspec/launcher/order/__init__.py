"""What a launcher is told: of its node as it starts, and the orders (generations) that it follows."""
