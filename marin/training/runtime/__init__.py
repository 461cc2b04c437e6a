"""What a process needs before it trains: compiler, hosts, matrix products in one form, known answers, being stopped."""
