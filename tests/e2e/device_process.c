/*
 * device_process.c - a client process, by two pipes: what it says on stdout, what lets it go on.
 *
 * Its ends are closed in the other process, so that either side's death ends what the other reads.
 * It dies with the test.
 */
#include "device_process.h"

#include "control_harness.h"

#include <fcntl.h>
#include <linux/sched.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static pid_t clone_with(uint64_t flags, const pid_t *as)
{
	struct clone_args args = {.flags = flags,
				  .exit_signal = SIGCHLD,
				  .set_tid = (uintptr_t)as,
				  .set_tid_size = as ? 1 : 0};

	return (pid_t)syscall(SYS_clone3, &args, sizeof(args));
}

static int status_of(pid_t pid)
{
	int status;

	if (waitpid(pid, &status, 0) != pid)
		return 98;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 97;
}

/* In a child: it goes on as the process that is wanted, or as its parent, the first of the
 * namespace, which ends with it. */
static void become(pid_t pid)
{
	pid_t child = clone_with(0, &pid);

	if (child > 0)
		_exit(status_of(child));
	if (child < 0)
		_exit(98);
}

/* pid == 0: a child like any. */
static struct stem exec_as(const char *const *argv, const char *variable, pid_t pid)
{
	int in[2], out[2];
	struct stem stem;

	assert_int_equal(pipe2(in, O_CLOEXEC), 0);
	assert_int_equal(pipe2(out, O_CLOEXEC), 0);
	stem = (struct stem){.pid = pid ? clone_with(CLONE_NEWUSER | CLONE_NEWPID, NULL) : fork(),
			     .role = argv[3],
			     .in = in[1],
			     .out = out[0]};
	if (stem.pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (pid)
			become(pid);
		dup2(in[0], STDIN_FILENO);
		dup2(out[1], STDOUT_FILENO);
		if (variable)
			putenv((char *)variable);
		execv(argv[0], (char *const *)argv);
		_exit(98);
	}
	close(in[0]);
	close(out[1]);
	return stem;
}

struct stem stem_exec(const char *const *argv, const char *variable)
{
	struct stem stem = exec_as(argv, variable, 0);

	assert_true(stem.pid >= 0);
	return stem;
}

struct stem stem_exec_as(const char *const *argv, const char *variable, pid_t pid)
{
	struct stem stem = exec_as(argv, variable, pid);

	if (stem.pid < 0) {
		close(stem.in);
		close(stem.out);
	}
	return stem;
}

void stem_await_go(const struct stem *stem)
{
	struct pollfd p = {.fd = stem->out, .events = POLLIN};
	char text[4] = "";

	if (poll(&p, 1, HARNESS_PATIENCE_MS) != 1)
		fail_msg("waited %d s for client \"%s\" to say go", HARNESS_PATIENCE_MS / 1000,
			 stem->role);
	assert_int_equal(read(stem->out, text, 3), 3);
	assert_string_equal(text, "go\n");
}

void stem_go(const struct stem *stem)
{
	assert_int_equal(write(stem->in, "\n", 1), 1);
}

int stem_end(struct stem *stem)
{
	char what[64];
	int status;

	snprintf(what, sizeof(what), "client \"%s\"", stem->role);
	status = harness_wait_for(stem->pid, what);
	close(stem->in);
	close(stem->out);
	return status;
}

void stem_kill(struct stem *stem)
{
	kill(stem->pid, SIGKILL);
	assert_int_equal(stem_end(stem), -SIGKILL);
}
