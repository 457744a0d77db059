"""The ways to tell people: webhooks, commands and mail."""
