/*
 * log_user.h - what the daemon says of what a user does, as much as one user may make it say: a
 * journal that has too much from somebody leaves out whatever comes next, and a disk has an end.
 */
#ifndef COPPICED_LOG_USER_H
#define COPPICED_LOG_USER_H

#include <sys/types.h>

/* Lines at once, and one more each while; how many were left out is said with the next. */
#define LOG_USER_LINES 256u
#define LOG_USER_LINE_NS UINT64_C(100000000)

/* A line of level info. Of who is privileged (uid.h) all are said. Any thread. */
void log_user(uid_t uid, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
