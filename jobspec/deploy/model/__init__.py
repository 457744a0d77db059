"""What is known of a job: values without a world, and what follows from them."""
