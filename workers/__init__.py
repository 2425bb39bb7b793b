"""What happens to a TASK: brief, agents, tools, fact extraction, and the shipped teams."""
