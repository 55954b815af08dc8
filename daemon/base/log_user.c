/*
 * log_user.c - see log_user.h. Of the users who had something said, those are remembered of whom
 * there was most: who is forgotten has nearly all of his lines again.
 */
#include "log_user.h"

#include "proto/clock.h"
#include "log.h"
#include "uid.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>

#define USERS 64u

struct told_user {
	uid_t uid;
	uint64_t whole_ns; /* when he has all of his lines again */
	uint64_t n_left_out; /* since the last that was said */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct told_user users[USERS]; /* the lock is of them */

static struct told_user *user_of(uid_t uid)
{
	struct told_user *quietest = users;

	for (uint32_t i = 0; i < USERS; i++) {
		if (users[i].whole_ns && users[i].uid == uid)
			return &users[i];
		if (users[i].whole_ns < quietest->whole_ns)
			quietest = &users[i];
	}
	*quietest = (struct told_user){.uid = uid};
	return quietest;
}

static bool take_line(uid_t uid, uint64_t *ret_left_out)
{
	uint64_t now_ns = clock_now_ns();
	struct told_user *user = user_of(uid);

	if (user->whole_ns < now_ns)
		user->whole_ns = now_ns;
	if (user->whole_ns - now_ns > (LOG_USER_LINES - 1) * LOG_USER_LINE_NS) {
		user->n_left_out++;
		return false;
	}
	user->whole_ns += LOG_USER_LINE_NS;
	*ret_left_out = user->n_left_out;
	user->n_left_out = 0;
	return true;
}

static bool may_say(uid_t uid, uint64_t *ret_left_out)
{
	bool may;

	if (uid_is_privileged(uid))
		return true;
	pthread_mutex_lock(&lock);
	may = take_line(uid, ret_left_out);
	pthread_mutex_unlock(&lock);
	return may;
}

void log_user(uid_t uid, const char *format, ...)
{
	uint64_t n_left_out = 0;
	char text[512];
	va_list args;

	if (!may_say(uid, &n_left_out))
		return;
	if (n_left_out > 0)
		log_info("%" PRIu64 " lines about uid %u were left out", n_left_out, uid);
	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	log_info("%s", text);
}
