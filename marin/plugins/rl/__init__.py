"""Reinforcement learning from rewards that are functions: completions are drawn, rewarded and learned, each step as evidence."""
