"""C to machine code, for every target from every host: `zig cc`, installed by pip."""
