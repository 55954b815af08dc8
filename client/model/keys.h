/*
 * keys.h - which keys of config.json are known, and what they may be.
 */
#ifndef MODEL_KEYS_H
#define MODEL_KEYS_H

#include "family.h"
#include "reading.h"

/* Refuses the first key that is not known, or that is known and asks for what is not computed. Keys
 * that model_config.c reads are left to it. */
MUST_CHECK int keys_check(const struct reading *in, const struct family *family);

#endif
