/*
 * verbs.h - the verbs of verbs.def, each defined in a file of its own or with its like.
 */
#ifndef COPPICED_VERBS_H
#define COPPICED_VERBS_H

#include "daemon/session/request.h"

#define VERB(name) extern const struct verb verb_##name;
#include "verbs.def"

#endif
