"""Programs as bytecode, and the C interpreter that runs it."""
