/*
 * config_fixture.c - reads flags and files as coppiced does, with its words caught in memory.
 */
#include "config_fixture.h"

#include "daemon/config/read.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#define MAX_ARGS 8

struct capture {
	int fd, file, saved;
};

static struct capture capture_begin(int fd)
{
	struct capture c = {.fd = fd, .file = memfd_create("said", MFD_CLOEXEC), .saved = dup(fd)};

	assert_true(c.file >= 0 && c.saved >= 0);
	assert_true(dup2(c.file, fd) == fd);
	return c;
}

static void capture_end(struct capture *c, char *text, size_t bytes)
{
	ssize_t n;

	fflush(stdout);
	n = pread(c->file, text, bytes - 1, 0);
	assert_true(n >= 0);
	text[n] = 0;
	assert_true(dup2(c->saved, c->fd) == c->fd);
	close(c->saved);
	close(c->file);
}

struct reading *read_flags(char **flags)
{
	static struct reading reading;
	char *argv[MAX_ARGS + 2] = {(char *)"coppiced"};
	struct capture err, out;
	int argc = 1;

	while (flags[argc - 1]) {
		argv[argc] = flags[argc - 1];
		argc++;
	}
	config_init(&reading.config);
	fflush(stdout);
	err = capture_begin(STDERR_FILENO);
	out = capture_begin(STDOUT_FILENO);
	reading.r = config_read(&reading.config, argc, argv);
	capture_end(&out, reading.printed, sizeof(reading.printed));
	capture_end(&err, reading.said, sizeof(reading.said));
	return &reading;
}

char *write_file(const char *text)
{
	static char path[] = "/tmp/coppice-config-XXXXXX";
	int fd;

	strcpy(path + sizeof(path) - 7, "XXXXXX");
	fd = mkstemp(path);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	close(fd);
	return path;
}

struct reading *read_text(const char *text)
{
	char *path = write_file(text);
	struct reading *reading = READ((char *)"--config", path);

	unlink(path);
	return reading;
}

void assert_says(const struct reading *reading, const char *part)
{
	if (!strstr(reading->said, part))
		fail_msg("\"%s\" is not in: %s", part, reading->said);
}
