"""Language models: prompts laid out and fenced, calls sent, limited, paid for and read."""
