"""The portal: a web server of views over results and history."""
