"""The zoo: real models with their data; README.md lists them."""
