"""Files that manifests name: fetched, checked and unpacked."""
