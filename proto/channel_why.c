/*
 * channel_why.c - sentences about sockets.
 *
 * What the path leads to is looked at after the attempt, so it may have changed in between: then
 * the sentence is that of the error number, never a wrong one.
 */
#include "proto/channel_why.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/un.h>

#define REMEDY "start coppiced, or name its socket in COPPICE_SOCKET"

/* What stands at the path in a socket's place; NULL: a socket, or nothing. */
static const char *impostor(const char *path)
{
	struct stat st;

	if (stat(path, &st) < 0 || S_ISSOCK(st.st_mode))
		return NULL;
	return S_ISDIR(st.st_mode) ? "a directory" : "a file";
}

static void say_impostor(const char *path, const char *what, char *text, size_t bytes)
{
	snprintf(text, bytes, "%s is %s, no socket: name the socket that coppiced listens on", path,
		 what);
}

static void say_long(const char *path, char *text, size_t bytes)
{
	snprintf(text, bytes, "%.100s... is too long: the path of a socket has at most %zu bytes",
		 path, sizeof((struct sockaddr_un){0}.sun_path) - 1);
}

void channel_why_connect(const char *path, int error, char *text, size_t bytes)
{
	const char *what = impostor(path);

	if (error == -ENAMETOOLONG)
		say_long(path, text, bytes);
	else if (what && (error == -ECONNREFUSED || error == -EPROTOTYPE))
		say_impostor(path, what, text, bytes);
	else if (error == -ENOENT)
		snprintf(text, bytes, "there is no socket %s: " REMEDY, path);
	else if (error == -ECONNREFUSED)
		snprintf(text, bytes, "nobody listens on %s: " REMEDY, path);
	else if (error == -EACCES)
		snprintf(text, bytes, "no permission to connect to %s: join the group that owns it",
			 path);
	else if (error == -ETIMEDOUT)
		snprintf(text, bytes,
			 "whoever listens on %s does not answer: look whether coppiced moves",
			 path);
	else
		snprintf(text, bytes, "cannot connect to %s: %s", path, strerrordesc_np(-error));
}

void channel_why_listen(const char *path, int error, char *text, size_t bytes)
{
	const char *what = impostor(path);

	if (error == -ENAMETOOLONG)
		say_long(path, text, bytes);
	else if (what && error == -ENOTSOCK)
		say_impostor(path, what, text, bytes);
	else if (error == -EADDRINUSE)
		snprintf(text, bytes, "another daemon answers on %s already", path);
	else if (error == -ENOENT)
		snprintf(text, bytes, "there is no directory for the socket %s: make it first",
			 path);
	else if (error == -EACCES || error == -EROFS)
		snprintf(text, bytes, "no permission to make the socket %s", path);
	else
		snprintf(text, bytes, "cannot listen on %s: %s", path, strerrordesc_np(-error));
}
