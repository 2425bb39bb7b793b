"""What each role may do on real servers, what never shows, and what no text from outside can change."""
