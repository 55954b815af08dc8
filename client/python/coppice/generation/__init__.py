"""Continuations of prompts, many at once: what coppice.LLM and coppice.serve have in common.

    checkpoint, tokenizer, template   what lies in a checkpoint's folder
    sampling, text                    which token comes next, and what text it completes
    stream, batch, engine             sequences on their way, of a lane, of all lanes
    request, answer                   from a prompt to streams, from their events to text
"""
