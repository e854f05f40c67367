"""Reports: figures and tables from finished runs; nothing here trains."""
