"""What every command says and how it ends: words, exit statuses, configuration."""
