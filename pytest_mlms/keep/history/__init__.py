"""History: what runs measured, kept in a database, and the changes in it."""
