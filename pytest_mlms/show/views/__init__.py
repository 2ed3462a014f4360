"""Views: what the terminal, the report, the portal and its JSON show, as plain records."""
