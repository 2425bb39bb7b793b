"""What the commands of the command line do; `ops.cli` names them and reads their options."""
