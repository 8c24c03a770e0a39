"""MCP servers as a client sees them: started when first needed, ended with their environment."""
