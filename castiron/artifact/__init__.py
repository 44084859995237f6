"""What users hold: executables, libraries, archives and source folders, and `load` to call a library from Python."""
