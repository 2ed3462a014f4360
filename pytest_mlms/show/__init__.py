"""Output for people: terminal and documents, the portal, pages and their pictures."""
