"""Messages for people about a job, and which launcher sends them where nobody watches."""
