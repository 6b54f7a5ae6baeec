"""What runs on a laptop or in a pipeline: the subcommands and their rooms."""
