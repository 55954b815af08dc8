/*
 * ctl_fixture.c - starts the daemon and the client, computes the two sequences, and runs coppicectl
 * as a process, as another user too, keeping what it says.
 */
#include "ctl_fixture.h"

#include "element.h"
#include "proto/channel.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define N_LAYERS 2u
#define HEAD_DIM 64u
#define MAX_TOKENS 64u
#define MAX_ARGS 12u

static const char *const prompts[] = {CTL_TRUNK CTL_FIRST, CTL_TRUNK CTL_SECOND};

/* ---- the daemon and its client -------------------------------------------------------------- */

static void nap_ms(long ms)
{
	nanosleep(&(struct timespec){.tv_nsec = ms * 1000000}, NULL);
}

/* flag: one more; NULL: none. */
static void daemon_start(struct ctl_fixture *f, const char *flag)
{
	char option[288], backend[64];
	int fd;

	snprintf(option, sizeof(option), "--socket=%s", f->socket);
	snprintf(backend, sizeof(backend), "--backend=%s", test_backend());
	f->daemon = fork();
	assert_true(f->daemon >= 0);
	if (f->daemon == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		execl(COPPICED_PATH, "coppiced", option, backend, "--pool=64M", "--extent=2M",
		      "--threads=1", "--config=/dev/null", "--log-level=warning", flag, NULL);
		_exit(127);
	}
	for (int i = 0; i < 1000; i++) {
		if (channel_connect(f->socket, CHANNEL_FOREVER, &fd) == 0) {
			close(fd);
			return;
		}
		assert_int_equal(waitpid(f->daemon, NULL, WNOHANG), 0);
		nap_ms(10);
	}
	fail_msg("the daemon does not listen");
}

static void daemon_stop(struct ctl_fixture *f)
{
	int status;

	if (f->daemon == 0)
		return;
	kill(f->daemon, SIGTERM);
	assert_int_equal(waitpid(f->daemon, &status, 0), f->daemon);
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	f->daemon = 0;
}

static uint32_t prompt_tokens(const char *prompt, uint32_t *ids)
{
	uint32_t n = 0;

	for (; prompt[n]; n++)
		ids[n] = (unsigned char)prompt[n];
	return n;
}

/* What is computed is not these tests' concern. */
void ctl_fixture_compute(struct ctl_fixture *f, struct coppice_seq *seq, const uint32_t *ids,
			 uint32_t n)
{
	void *base = coppice_arena_base(f->arena);
	struct coppice_step_seq part = {.seq = seq,
					.n_new = n,
					.q = base,
					.k = base,
					.v = base,
					.o = element_at(base, MAX_TOKENS * HEAD_DIM)};
	struct coppice_step step = {.seqs = &part, .n_seqs = 1};
	uint64_t ticket;

	assert_int_equal(coppice_seq_extend(seq, ids, n, &ticket), 0);
	for (step.layer = 0; step.layer < N_LAYERS; step.layer++)
		assert_int_equal(coppice_step(f->lane, &step, &ticket), 0);
	assert_int_equal(coppice_wait(f->lane, ticket, UINT64_C(10000000000)), 0);
}

static void client_start(struct ctl_fixture *f)
{
	struct coppice_model_info info = {.name = "ctl",
					  .n_layers = N_LAYERS,
					  .n_q_heads = 1,
					  .n_kv_heads = 1,
					  .head_dim = HEAD_DIM,
					  .dtype = (enum coppice_dtype)element_dtype(),
					  .page_tokens = 16};
	struct coppice_match match;
	uint32_t ids[MAX_TOKENS];

	assert_int_equal(coppice_connect(&f->c, f->socket), 0);
	assert_int_equal(coppice_model_open(f->c, &info, &f->model), 0);
	assert_int_equal(coppice_arena_new(f->c, COPPICE_HOST, 1, &f->arena), 0);
	assert_int_equal(coppice_lane_new(f->c, &f->lane), 0);
	for (int i = 0; i < 2; i++) {
		uint32_t n = prompt_tokens(prompts[i], ids);
		assert_int_equal(coppice_seq_open(f->lane, f->model, ids, n, 0, &f->seqs[i],
						  &match),
				 0);
		ctl_fixture_compute(f, f->seqs[i], ids + match.cached, n - match.cached);
	}
}

void ctl_fixture_close_seqs(struct ctl_fixture *f)
{
	for (int i = 0; i < 2; i++) {
		coppice_seq_close(f->seqs[i]);
		f->seqs[i] = NULL;
	}
}

uint32_t ctl_fixture_reopen(struct ctl_fixture *f, int i)
{
	uint32_t ids[MAX_TOKENS], n = prompt_tokens(prompts[i], ids);
	struct coppice_match match;

	assert_int_equal(coppice_seq_open(f->lane, f->model, ids, n, 0, &f->seqs[i], &match), 0);
	if (match.pending)
		assert_int_equal(coppice_seq_wait(f->seqs[i], UINT64_C(10000000000), &match), 0);
	return match.cached;
}

static void client_stop(struct ctl_fixture *f)
{
	ctl_fixture_close_seqs(f);
	coppice_lane_free(f->lane);
	coppice_arena_free(f->arena);
	coppice_close(f->c);
}

/* A daemon, and nobody who calls it; as daemon_start. */
static struct ctl_fixture *fixture_new(const char *flag)
{
	struct ctl_fixture *f = calloc(1, sizeof(*f));

	assert_non_null(f);
	strcpy(f->folder, "/tmp/ctl-XXXXXX");
	assert_non_null(mkdtemp(f->folder));
	assert_int_equal(chmod(f->folder, 0755), 0);
	snprintf(f->socket, sizeof(f->socket), "%s/sock", f->folder);
	daemon_start(f, flag);
	return f;
}

int ctl_fixture_new(void **state)
{
	*state = fixture_new(NULL);
	client_start(*state);
	return 0;
}

int ctl_fixture_new_host(void **state)
{
	*state = fixture_new("--host-tier=64M");
	client_start(*state);
	return 0;
}

int ctl_fixture_new_empty(void **state)
{
	*state = fixture_new(NULL);
	return 0;
}

int ctl_fixture_free(void **state)
{
	struct ctl_fixture *f = *state;

	client_stop(f);
	daemon_stop(f);
	unlink(f->socket);
	rmdir(f->folder);
	free(f);
	return 0;
}

/* ---- coppicectl ----------------------------------------------------------------------------- */

static void read_file(FILE *file, char *ret, size_t bytes)
{
	rewind(file);
	ret[fread(ret, 1, bytes - 1, file)] = '\0';
	fclose(file);
}

/* Runs coppicectl with the words (up to NULL), as uid. */
void ctl_run_as(uid_t uid, const struct ctl_fixture *f, struct ctl_answer *ret,
		const char *const *words)
{
	FILE *out = tmpfile(), *err = tmpfile();
	/* By descriptor: the build may stand in a folder that uid cannot enter. */
	int program = open(COPPICECTL_PATH, O_RDONLY | O_CLOEXEC);
	char *args[MAX_ARGS + 4] = {(char *)"coppicectl", (char *)"--socket", (char *)f->socket};
	int status;
	pid_t pid;

	assert_true(out && err && program >= 0);
	for (size_t i = 0; words[i]; i++)
		args[3 + i] = (char *)words[i];
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		dup2(fileno(out), STDOUT_FILENO);
		dup2(fileno(err), STDERR_FILENO);
		if (uid != getuid() && setresuid(uid, uid, uid) < 0)
			_exit(126);
		fexecve(program, args, environ);
		_exit(127);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	close(program);
	ret->status = WEXITSTATUS(status);
	read_file(out, ret->out, sizeof(ret->out));
	read_file(err, ret->err, sizeof(ret->err));
}
