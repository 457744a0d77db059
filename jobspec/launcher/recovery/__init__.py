"""What launchers decide by themselves where no supervisor does. docs/protocol.md has the rules."""
