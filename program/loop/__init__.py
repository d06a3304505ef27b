"""The loop from a question to an answer: pure steps, and drivers that perform what they ask for."""
