"""Distribution of items over the workers of pytest-xdist.

``scheduler`` decides which worker runs which item next. ``controller`` is the plugin of the process
that the user started, ``worker`` the plugin of each worker. ``remote`` prepares other hosts.

Only this package imports xdist and execnet, and only in a run that distributes manifests.
"""
