/* agent_fixture.c - an agent's two streams are files, so that nothing it says can block it, and its
 * life is limited, so that one that hangs fails its test. */
#include "agent_fixture.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#define MAX_ARGS 24u
#define LIFE_S 100 /* no agent lives longer */

const char *const ways[N_WAYS] = {[AUTO] = "auto", [SELF] = "self"};

void agent_start(struct agent *a, const struct harness *h, const char *const *words)
{
	const char *args[MAX_ARGS + 6] = {"coppice-agent", "--socket", h->socket, "--model",
					  MODEL_DIR};

	for (size_t i = 0; words[i]; i++) {
		assert_true(i < MAX_ARGS);
		args[5 + i] = words[i];
	}
	for (int i = 0; i < 2; i++)
		assert_non_null(a->files[i] = tmpfile());
	a->pid = fork();
	assert_true(a->pid >= 0);
	if (a->pid > 0)
		return;
	if (a->uid && !become_user(a->uid))
		_exit(99);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	alarm(LIFE_S);
	dup2(fileno(a->files[0]), STDOUT_FILENO);
	dup2(fileno(a->files[1]), STDERR_FILENO);
	execv(AGENT_PATH, (char **)args);
	_exit(127);
}

static void read_file(FILE *file, char *ret, size_t bytes)
{
	rewind(file);
	ret[fread(ret, 1, bytes - 1, file)] = 0;
	fclose(file);
}

void agent_end(struct agent *a)
{
	a->status = harness_wait(a->pid);
	read_file(a->files[0], a->out, sizeof(a->out));
	read_file(a->files[1], a->err, sizeof(a->err));
}

void agent_run(struct agent *a, const struct harness *h, const char *const *words)
{
	agent_start(a, h, words);
	agent_end(a);
}

const char *agent_said(const struct agent *a)
{
	static const char falls_back[] = "This process computes the layers itself.\n";
	const char *at = strstr(a->err, falls_back);

	return at ? at + strlen(falls_back) : a->err;
}

json_t *agent_report(const struct agent *a)
{
	json_error_t error;
	json_t *object = json_loads(a->out, JSON_REJECT_DUPLICATES, &error);

	if (a->status != 0)
		fail_msg("ended with %d: %s", a->status, a->err);
	if (!object)
		fail_msg("%s: %s", error.text, a->out);
	return object;
}

json_int_t number_of(const json_t *object, const char *name)
{
	const json_t *number = json_object_get(object, name);

	assert_true(json_is_integer(number));
	return json_integer_value(number);
}

int agent_setup(void **state)
{
	struct harness *h = harness_new("auto");

	h->flags[0] = "--max-sessions=32";
	h->flags[1] = "--max-domain-sessions=32";
	harness_start(h);
	*state = h;
	return 0;
}

int agent_setup_not_started(void **state)
{
	*state = harness_new("auto");
	return 0;
}
