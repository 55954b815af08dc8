/*
 * llama_load.h - a model from its folder.
 */
#ifndef AGENT_LLAMA_LOAD_H
#define AGENT_LLAMA_LOAD_H

#include "llama.h"

/* Maps and checks the model in dir (config.json and safetensors). 0, or -errno and a sentence. */
MUST_CHECK int llama_load(const char *dir, struct llama *ret, struct fault *fault);
/* A zeroed struct is fine. */
void llama_done(struct llama *model);

#endif
