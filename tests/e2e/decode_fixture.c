/* decode_fixture.c - the daemon is started and asked until it answers; what fails is told in the
 * library's own sentence. */
#include "decode_fixture.h"

#include "client/model/coppice_hf.h"

#include <fcntl.h>
#include <math.h>
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

static void must(struct coppice *c, int r)
{
	if (r < 0)
		fail_msg("%s (%d)", coppice_explain(c), r);
}

bool decode_on_gpu(void)
{
	const char *name = getenv("COPPICE_TEST_BACKEND");

	return name && strcmp(name, "cuda") == 0;
}

static const char *backend_option(void)
{
	return decode_on_gpu() ? "--backend=cuda" : "--backend=cpu";
}

static void read_document(struct decode_service *s)
{
	FILE *file = fopen(MODEL_DIR "/samples.txt", "r");

	assert_non_null(file);
	for (uint32_t i = 0; i < DECODE_TOKENS; i++) {
		int byte = getc(file);

		assert_true(byte != EOF);
		s->ids[i] = (uint32_t)byte;
	}
	fclose(file);
}

/* Asks until the daemon answers. */
static struct coppice *connect_soon(const struct decode_service *s)
{
	struct coppice *c = NULL;

	for (int i = 0; i < 1000 && coppice_connect(&c, s->socket) < 0; i++)
		usleep(10000);
	assert_non_null(c);
	return c;
}

static void service_start(struct decode_service *s)
{
	read_document(s);
	strcpy(s->dir, "/tmp/coppice-decode-XXXXXX");
	assert_non_null(mkdtemp(s->dir));
	snprintf(s->socket, sizeof(s->socket), "%s/socket", s->dir);
	s->pid = fork();
	assert_true(s->pid >= 0);
	if (s->pid > 0) {
		coppice_close(connect_soon(s));
		return;
	}
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	execl(COPPICED_PATH, "coppiced", "--socket", s->socket, backend_option(), "--pool=256M",
	      "--config=/dev/null", "--log-level=warning", s->options[0], s->options[1],
	      s->options[2], s->options[3], s->options[4], s->options[5], NULL);
	_exit(127);
}

static void service_stop(struct decode_service *s)
{
	int status;

	assert_true(s->pid > 0); /* 0 were this process and all that started it */
	kill(s->pid, SIGTERM);
	assert_int_equal(waitpid(s->pid, &status, 0), s->pid);
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	unlink(s->socket);
	rmdir(s->dir);
}

int decode_setup(void **state)
{
	(void)state;
	service_start(&service);
	return 0;
}

int decode_teardown(void **state)
{
	(void)state;
	service_stop(&service);
	return 0;
}

static struct coppice_weights *weights_of(struct coppice *c, const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct coppice_weights *weights;
	struct coppice_progress progress = {.size = sizeof(progress)};

	assert_true(fd >= 0);
	must(c, coppice_weights_open(c, &fd, 1, &weights));
	close(fd);
	must(c, coppice_weights_wait(weights, COPPICE_SECONDS(60), &progress));
	return weights;
}

const char *decode_listing(const char *words)
{
	static char text[1 << 16];
	char command[256];
	FILE *out;
	size_t n;

	snprintf(command, sizeof(command), "%s --socket %s %s", COPPICECTL_PATH, service.socket,
		 words);
	out = popen(command, "r");
	assert_non_null(out);
	n = fread(text, 1, sizeof(text) - 1, out);
	text[n] = 0;
	assert_int_equal(pclose(out), 0);
	return text;
}

struct coppice_weights *decode_weights(struct coppice *c)
{
	return weights_of(c, MODEL_DIR "/model.safetensors");
}

struct coppice_hf_program *decode_program(const struct decode_client *client)
{
	struct coppice_hf_program *program;
	char why[COPPICE_HF_WHY_BYTES];

	if (coppice_hf_read(MODEL_DIR "/config.json", NULL, &program, why) < 0 ||
	    coppice_hf_bind(program, coppice_hf_find_weights, client->weights, why) < 0)
		fail_msg("%s", why);
	return program;
}

struct coppice_program_info decode_deep_program(const struct coppice_hf_program *program)
{
	static uint32_t tensors[DECODE_LAYERS_MOST * COPPICE_SLOTS_MAX];
	static uint8_t kind_of[DECODE_LAYERS_MOST];
	struct coppice_program_info info = program->info;

	for (uint32_t i = 0; i < DECODE_LAYERS_MOST; i++)
		memcpy(tensors + i * info.n_slots, info.tensors, info.n_slots * sizeof(*tensors));
	info.n_layers = DECODE_LAYERS_MOST;
	info.tensors = tensors;
	info.kind_of = kind_of;
	return info;
}

static void open_program(struct decode_client *client)
{
	char why[COPPICE_HF_WHY_BYTES];

	if (coppice_hf_program_new(client->c, client->weights, MODEL_DIR "/config.json",
				   &client->model, why) < 0)
		fail_msg("%s", why);
}

void decode_client_open(struct decode_client *client, const struct decode_service *s)
{
	decode_client_open_of(client, s, MODEL_DIR "/model.safetensors");
}

void decode_client_open_of(struct decode_client *client, const struct decode_service *s,
			   const char *path)
{
	*client = (struct decode_client){.c = connect_soon(s)};
	must(client->c,
	     coppice_arena_new(client->c, COPPICE_HOST, DECODE_OUT_BYTES, &client->arena));
	must(client->c, coppice_lane_new(client->c, &client->lane));
	client->out = coppice_arena_base(client->arena);
	client->weights = weights_of(client->c, path);
	open_program(client);
}

void decode_client_close(struct decode_client *client)
{
	coppice_weights_close(client->weights);
	coppice_close(client->c);
}

struct coppice_seq *decode_open(struct decode_client *client, const uint32_t *ids, uint32_t n,
				struct coppice_match *ret)
{
	struct coppice_match match;
	struct coppice_seq *seq;

	must(client->c, coppice_seq_open(client->lane, client->model, ids, n, 0, &seq, &match));
	if (ret)
		*ret = match;
	return seq;
}

uint64_t decode_run(struct decode_client *client, struct coppice_seq *seq, const uint32_t *ids,
		    uint32_t n)
{
	const struct coppice_decode_seq part = {.seq = seq,
						.ids = ids,
						.n_new = n,
						.first_wanted = n - 1};
	const struct coppice_decode decode = {.size = sizeof(decode),
					      .seqs = &part,
					      .n_seqs = 1,
					      .want = COPPICE_WANT_TOP | COPPICE_WANT_LOGITS,
					      .n_top = 20,
					      .out = client->out};
	struct coppice_result result;
	uint64_t ticket;

	must(client->c, coppice_decode_wait(client->lane, &decode, COPPICE_SECONDS(60), &ticket));
	must(client->c, coppice_poll(client->lane, ticket, &result));
	return result.value;
}

const struct coppice_row *decode_row(const struct decode_client *client)
{
	return (const struct coppice_row *)client->out;
}

const float *decode_logits(const struct decode_client *client)
{
	return (const float *)(client->out + sizeof(struct coppice_row));
}

struct coppice_seq *decode_prompt(struct decode_client *client, const uint32_t *ids, uint32_t n)
{
	struct coppice_match match;
	struct coppice_seq *seq = decode_open(client, ids, n, &match);

	decode_run(client, seq, ids + match.cached, n - match.cached);
	return seq;
}

struct coppice_seq *decode_anew(struct decode_client *client, const uint32_t *ids, uint32_t n)
{
	struct coppice_seq *seq = decode_open(client, ids, n, NULL);

	must(client->c, coppice_seq_trim(seq, 0, NULL));
	decode_run(client, seq, ids, n);
	return seq;
}

/* On a GPU a product's inputs are rounded to bf16, to 2^-9 of a value at most, and what each layer
 * rounds comes out a unit apart: 8 times that in each of 5 layers, and once for the head. Both that
 * are compared are off, but errors have either sign, and no two are at their worst. */
void decode_assert_same(const struct decode_client *client, const float *logits)
{
	const float *got = decode_logits(client);
	double off = 0, all = 0;

	if (!decode_on_gpu())
		assert_memory_equal(got, logits, DECODE_VOCAB * sizeof(*logits));
	for (uint32_t i = 0; i < DECODE_VOCAB; i++) {
		off += pow((double)got[i] - (double)logits[i], 2);
		all += pow((double)logits[i], 2);
	}
	if (!(sqrt(off) <= 41 * 0x1p-9 * sqrt(all)))
		fail_msg("logits are off by %g of their length", sqrt(off / all));
}
