"""The trip team: a family's days in a city, from profile over spots and hotels side by side to an itinerary. `team` holds it."""
