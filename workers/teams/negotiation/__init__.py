"""The negotiation assistant: what a creditor may offer, who may say it, and what was said and therefore holds."""
