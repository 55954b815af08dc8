/*
 * client_fixture.c - a coppiced in a folder of its own, and one connection with a model, an arena
 * and a lane.
 *
 * The daemon computes on the CPU, has a pool of 64 MiB, and dies with the test's process. A
 * connection is tried until the daemon answers: a test that begins has one.
 */
#include "client_fixture.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

const char *client_daemon;

void daemon_start(struct fixture *f)
{
	f->daemon = fork();
	assert_true(f->daemon >= 0);
	if (f->daemon > 0)
		return;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	execl(client_daemon, "coppiced", "--socket", f->path, "--pool", "64M", "--backend", "cpu",
	      "--log-level", "error", NULL);
	_exit(127);
}

void daemon_stop(struct fixture *f)
{
	if (f->daemon <= 0)
		return;
	kill(f->daemon, SIGKILL);
	waitpid(f->daemon, NULL, 0);
	f->daemon = 0;
}

void daemon_pause(struct fixture *f)
{
	kill(f->daemon, SIGSTOP);
	waitpid(f->daemon, NULL, WUNTRACED);
}

struct coppice *connect_soon(const char *path)
{
	struct coppice *c = NULL;

	for (int i = 0; i < 1000 && coppice_connect(&c, path) < 0; i++)
		usleep(10000);
	assert_non_null(c);
	return c;
}

int client_setup(void **state)
{
	struct coppice_model_info info = {
		.name = "m",
		.n_layers = 1,
		.n_q_heads = 1,
		.n_kv_heads = 1,
		.head_dim = 16,
		.dtype = COPPICE_FP32,
	};
	struct fixture *f = calloc(1, sizeof(*f));

	strcpy(f->dir, "/tmp/client-test-XXXXXX");
	assert_non_null(mkdtemp(f->dir));
	snprintf(f->path, sizeof(f->path), "%s/socket", f->dir);
	daemon_start(f);
	f->c = connect_soon(f->path);
	assert_int_equal(coppice_model_open(f->c, &info, &f->model), 0);
	assert_int_equal(coppice_arena_new(f->c, COPPICE_HOST, 1, &f->arena), 0);
	assert_int_equal(coppice_lane_new(f->c, &f->lane), 0);
	for (uint32_t i = 0; i < CLIENT_IDS; i++)
		f->ids[i] = i;
	*state = f;
	return 0;
}

int client_teardown(void **state)
{
	struct fixture *f = *state;

	coppice_close(f->c);
	daemon_stop(f);
	unlink(f->path);
	rmdir(f->dir);
	free(f);
	return 0;
}

struct coppice_seq *client_open_seq(struct fixture *f, struct coppice_lane *lane, uint32_t n)
{
	struct coppice_match match;
	struct coppice_seq *seq;

	assert_int_equal(coppice_seq_open(lane, f->model, f->ids, n, 0, &seq, &match), 0);
	assert_true(match.cached < n);
	return seq;
}

void assert_explained(struct fixture *f, const char *part)
{
	const char *sentence = coppice_explain(f->c);

	if (!strstr(sentence, part))
		fail_msg("\"%s\" does not say \"%s\"", sentence, part);
}

struct coppice_step_seq client_part_of(struct fixture *f, struct coppice_seq *seq, uint32_t n_new)
{
	float *rows = coppice_arena_base(f->arena);

	return (struct coppice_step_seq){
		.seq = seq,
		.n_new = n_new,
		.q = rows,
		.k = rows + 16 * n_new,
		.v = rows + 32 * n_new,
		.o = rows + 48 * n_new,
		.lse = rows + 64 * n_new,
	};
}
