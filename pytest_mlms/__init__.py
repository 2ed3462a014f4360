"""pytest-mlms: does an ML model still work as well as it must on this software and this device?"""

__version__ = "0.1.0"
