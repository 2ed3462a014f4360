"""What every storey uses: records, units, statistics, files, errors, quantities."""
