"""Tips: from failed attempts to short instructions that make the next attempt better."""
