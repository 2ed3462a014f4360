"""What people see: terminal and documents, the portal, pages and their pictures."""
