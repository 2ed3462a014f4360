"""Manifests of MLModelScope: read into records, and translated to native manifests."""
