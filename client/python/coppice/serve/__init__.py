"""An HTTP server that clients of OpenAI's API can talk to: python -m coppice.serve."""
