/*
 * uid.h - which users come beside all others.
 */
#ifndef COPPICED_UID_H
#define COPPICED_UID_H

#include <stdbool.h>
#include <sys/types.h>
#include <unistd.h>

/* Root, and whom the daemon runs as: they look after it, and have a part beside the others'. */
static inline bool uid_is_privileged(uid_t uid)
{
	return uid == 0 || uid == geteuid();
}

#endif
