"""What a process needs before it trains: compiler, hosts, known answers, being stopped."""
