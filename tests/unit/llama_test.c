/*
 * llama_test.c - the forward pass against PyTorch's logits for the same weights, with plain
 * attention and with a real daemon's; and what company and chunks may change: nothing.
 */
#include "client/agent/daemon_attention.h"
#include "client/agent/ids.h"
#include "client/agent/llama_load.h"
#include "client/agent/sampler.h"
#include "client/model/file.h"
#include "../e2e/element.h"
#include "plain_attention.h"

#include <dirent.h>
#include <limits.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define CHUNK 256

/* A model and what PyTorch (float64 arithmetic on the stored weights) made of a prompt. */
struct fixture {
	struct llama model;
	uint32_t *prompt, n_prompt; /* owned */
	float *logits; /* owned, [n_last][n_vocab], of the prompt's last positions */
	uint32_t n_last;
	uint32_t *greedy, n_greedy; /* owned: what follows the prompt */
};

/* One sequence on either attention. */
struct runner {
	struct llama_pass pass;
	struct plain_attention plain;
	struct plain_seq plain_seq;
	struct daemon_attention *daemon; /* NULL: plain */
	struct daemon_seq daemon_seq;
	uint32_t n_tokens; /* so far */
};

static struct fixture main_fixture; /* the trained model on a prompt of 600 bytes */

/* ---- fixtures ------------------------------------------------------------------------------- */

static bool file_is_there(const char *dir, const char *name, char *path, size_t bytes)
{
	snprintf(path, bytes, "%s/%s", dir, name);
	return access(path, R_OK) == 0;
}

static void read_bytes_as_ids(const char *path, uint32_t **ret, uint32_t *ret_n)
{
	struct fault fault;
	char *text;
	size_t n;
	if (file_read(path, &text, &n, &fault) < 0)
		fail_msg("%s", fault.text);
	*ret = calloc(n + 1, sizeof(**ret));
	assert_non_null(*ret);
	for (size_t i = 0; i < n; i++)
		(*ret)[i] = (unsigned char)text[i];
	*ret_n = n;
	free(text);
}

static void fixture_load(struct fixture *f, const char *model_dir, const char *dir)
{
	struct fault fault;
	char path[1024];
	size_t bytes;
	*f = (struct fixture){0};
	if (llama_load(model_dir, &f->model, &fault) < 0)
		fail_msg("%s", fault.text);
	assert_true(file_is_there(dir, "prompt.bin", path, sizeof(path)));
	if (f->model.config.n_vocab == 256)
		read_bytes_as_ids(path, &f->prompt, &f->n_prompt);
	else
		assert_int_equal(ids_read(path, &f->prompt, &f->n_prompt, &fault), 0);
	assert_true(file_is_there(dir, "logits.f32", path, sizeof(path)));
	char *logits;
	if (file_read(path, &logits, &bytes, &fault) < 0)
		fail_msg("%s", fault.text);
	f->logits = (float *)logits;
	f->n_last = bytes / sizeof(float) / f->model.config.n_vocab;
	assert_true(f->n_last > 0 && f->n_last <= f->n_prompt);
	if (file_is_there(dir, "greedy.bin", path, sizeof(path)))
		read_bytes_as_ids(path, &f->greedy, &f->n_greedy);
}

static void fixture_done(struct fixture *f)
{
	llama_done(&f->model);
	free(f->prompt);
	free(f->logits);
	free(f->greedy);
}

/* ---- running -------------------------------------------------------------------------------- */

static void runner_plain(struct runner *run, const struct fixture *f, enum coppice_dtype dtype)
{
	struct fault fault;
	*run = (struct runner){0};
	plain_attention_init(&run->plain, &f->model, dtype, CHUNK);
	plain_seq_init(&run->plain_seq, &f->model, f->n_prompt + f->n_greedy);
	assert_int_equal(llama_pass_init(&run->pass, &f->model, &run->plain.base, &fault), 0);
}

static void runner_daemon(struct runner *run, const struct fixture *f,
			  struct daemon_attention *daemon)
{
	struct fault fault;
	*run = (struct runner){.daemon = daemon};
	assert_int_equal(llama_pass_init(&run->pass, &f->model, &daemon->base, &fault), 0);
	if (daemon_seq_open(&daemon->daemon, f->prompt, f->n_prompt, &run->daemon_seq, &fault))
		fail_msg("%s", fault.text);
	run->n_tokens = run->daemon_seq.match.cached;
}

static void runner_done(struct runner *run)
{
	llama_pass_done(&run->pass);
	if (run->daemon) {
		daemon_seq_close(&run->daemon_seq);
	} else {
		plain_seq_done(&run->plain_seq);
		plain_attention_done(&run->plain);
	}
}

/* The next n <= CHUNK tokens; logits of the last n_wanted of them. */
static void advance(struct runner *run, const uint32_t *ids, uint32_t n, uint32_t n_wanted,
		    float *logits)
{
	uint32_t positions[CHUNK], wanted[CHUNK];
	struct attention_part part = {&run->plain_seq, n};
	struct fault fault;
	if (run->daemon) {
		part.seq = &run->daemon_seq;
		if (daemon_seq_extend(&run->daemon->daemon, &run->daemon_seq, ids, n, &fault) < 0)
			fail_msg("%s", fault.text);
	}
	for (uint32_t i = 0; i < n; i++)
		positions[i] = run->n_tokens + i;
	for (uint32_t i = 0; i < n_wanted; i++)
		wanted[i] = n - n_wanted + i;
	const struct llama_batch batch = {n, ids, positions, &part, 1, wanted, n_wanted};
	if (llama_forward(&run->pass, &batch, logits, &fault) < 0)
		fail_msg("%s", fault.text);
	run->n_tokens += n;
}

/* The rest of the prompt in chunks, the last n_last <= CHUNK tokens as a chunk of their own. */
static void prefill(struct runner *run, const struct fixture *f, uint32_t chunk, uint32_t n_last,
		    float *logits)
{
	const uint32_t end = f->n_prompt - n_last;
	while (run->n_tokens < end) {
		const uint32_t left = end - run->n_tokens;
		advance(run, f->prompt + run->n_tokens, left < chunk ? left : chunk, 0, NULL);
	}
	advance(run, f->prompt + end, n_last, n_last, logits);
}

static double largest_difference(const float *a, const float *b, size_t n)
{
	double largest = 0;
	for (size_t i = 0; i < n; i++) {
		assert_true(isfinite(a[i]));
		largest = fmax(largest, fabs((double)a[i] - b[i]));
	}
	return largest;
}

static double logits_error(struct runner *run, const struct fixture *f)
{
	const size_t n = (size_t)f->n_last * f->model.config.n_vocab;
	float *logits = calloc(n, sizeof(*logits));
	assert_non_null(logits);
	prefill(run, f, CHUNK, f->n_last, logits);
	const double error = largest_difference(logits, f->logits, n);
	free(logits);
	return error;
}

/* Follows the recorded continuation: each token must be the likeliest after those before it. */
static void check_greedy(struct runner *run, const struct fixture *f)
{
	struct sampler sampler;
	const uint32_t n_vocab = f->model.config.n_vocab;
	float *logits = calloc(n_vocab, sizeof(*logits));
	assert_non_null(logits);
	assert_int_equal(sampler_init(&sampler, &(struct sampler_config){.top_p = 1}, n_vocab), 0);
	prefill(run, f, CHUNK, 1, logits);
	for (uint32_t i = 0; i < f->n_greedy; i++) {
		const struct sampler_choice choice =
			sampler_pick(&sampler, &(struct sampler_scores){.logits = logits});
		if (choice.id != f->greedy[i])
			fail_msg("token %u: %u, not %u; logprobs %.6f and %.6f", i, choice.id,
				 f->greedy[i], choice.logprob, choice.other_logprob);
		if (i + 1 < f->n_greedy)
			advance(run, &f->greedy[i], 1, 1, logits);
	}
	sampler_done(&sampler);
	free(logits);
}

/* ---- plain attention ------------------------------------------------------------------------ */

/*
 * fp32 sums of a few hundred terms are off by about 1e-7 of their size, and some 30 of them follow
 * each other on the way to a logit of size 10 to 30: errors near 1e-5. 2e-4 leaves a factor of 20
 * and is far below what a wrong formula does (angles rounded to fp32 alone move logits at position
 * 8000 by more).
 */
#define FP32_TOLERANCE 2e-4
/*
 * bf16 rounds Q, K, V and O by up to 2^-9 each; errors of many keys average out, those of five
 * layers add up to less than 1e-2 of the residual stream, and so to at most a tenth or two of a
 * logit of 10 to 30.
 */
#define BF16_TOLERANCE 0.2

static void logits_agree_with_pytorch(void **state)
{
	(void)state;
	struct runner run;
	runner_plain(&run, &main_fixture, COPPICE_FP32);
	const double error = logits_error(&run, &main_fixture);
	print_message("fp32 KV: largest error of a logit %.2e\n", error);
	assert_true(error <= FP32_TOLERANCE);
	runner_done(&run);
}

static void logits_agree_with_pytorch_when_kv_is_bf16(void **state)
{
	(void)state;
	struct runner run;
	runner_plain(&run, &main_fixture, COPPICE_BF16);
	const double error = logits_error(&run, &main_fixture);
	print_message("bf16 KV: largest error of a logit %.2e\n", error);
	assert_true(error <= BF16_TOLERANCE);
	runner_done(&run);
}

static void the_greedy_continuation_is_pytorchs(void **state)
{
	(void)state;
	struct runner run;
	runner_plain(&run, &main_fixture, COPPICE_FP32);
	check_greedy(&run, &main_fixture);
	runner_done(&run);
}

static void chunks_do_not_change_a_bit(void **state)
{
	(void)state;
	static const uint32_t chunks[] = {CHUNK, 37, 1};
	struct fixture f = main_fixture;
	const size_t n_vocab = f.model.config.n_vocab;
	float *logits = calloc(3 * n_vocab, sizeof(*logits));
	assert_non_null(logits);
	f.n_prompt = 300;
	for (int i = 0; i < 3; i++) {
		struct runner run;
		runner_plain(&run, &f, COPPICE_FP32);
		prefill(&run, &f, chunks[i], 1, logits + i * n_vocab);
		runner_done(&run);
	}
	assert_memory_equal(logits, logits + n_vocab, n_vocab * sizeof(*logits));
	assert_memory_equal(logits, logits + 2 * n_vocab, n_vocab * sizeof(*logits));
	free(logits);
}

enum { COMPANY = 3, COMPANY_TOKENS = 40 };

/* Sequence i begins at byte i of the prompt. */
static void together(const struct fixture *f, uint32_t first, uint32_t n, float *logits)
{
	struct plain_attention plain;
	struct plain_seq seqs[COMPANY];
	struct llama_pass pass;
	struct fault fault;
	plain_attention_init(&plain, &f->model, COPPICE_BF16, COMPANY);
	assert_int_equal(llama_pass_init(&pass, &f->model, &plain.base, &fault), 0);
	for (uint32_t i = 0; i < n; i++)
		plain_seq_init(&seqs[i], &f->model, COMPANY_TOKENS);
	for (uint32_t t = 0; t < COMPANY_TOKENS; t++) {
		uint32_t ids[COMPANY], positions[COMPANY], wanted[COMPANY];
		struct attention_part parts[COMPANY];
		for (uint32_t i = 0; i < n; i++) {
			ids[i] = f->prompt[first + i + t];
			positions[i] = t;
			wanted[i] = i;
			parts[i] = (struct attention_part){&seqs[i], 1};
		}
		const struct llama_batch batch = {n, ids, positions, parts, n, wanted, n};
		assert_int_equal(llama_forward(&pass, &batch, logits, &fault), 0);
	}
	for (uint32_t i = 0; i < n; i++)
		plain_seq_done(&seqs[i]);
	llama_pass_done(&pass);
	plain_attention_done(&plain);
}

static void company_does_not_change_a_bit(void **state)
{
	(void)state;
	const struct fixture *f = &main_fixture;
	const size_t n_vocab = f->model.config.n_vocab;
	float *logits = calloc((COMPANY + 1) * n_vocab, sizeof(*logits));
	assert_non_null(logits);
	together(f, 0, COMPANY, logits);
	for (uint32_t i = 0; i < COMPANY; i++) {
		float *alone = logits + COMPANY * n_vocab;
		together(f, i, 1, alone);
		assert_memory_equal(alone, logits + i * n_vocab, n_vocab * sizeof(*logits));
	}
	free(logits);
}

/* ---- loading -------------------------------------------------------------------------------- */

static void check_every_isa(struct fixture *f, const char *name)
{
	static const char *const isas[] = {"generic", "avx2", "avx512"};
	for (int i = 0; i < 3; i++) {
		struct runner run;
		f->model.ops = rows_ops_select(isas[i]);
		if (!f->model.ops)
			continue;
		runner_plain(&run, f, COPPICE_FP32);
		const double error = logits_error(&run, f);
		print_message("%s, %s: largest error of a logit %.2e\n", name, isas[i], error);
		assert_true(error <= FP32_TOLERANCE);
		runner_done(&run);
	}
}

static void every_tiny_model_agrees_with_pytorch_on_every_instruction_set(void **state)
{
	(void)state;
	DIR *dir = opendir(MODEL_DIR "/fixture");
	int n = 0;
	assert_non_null(dir);
	for (struct dirent *entry; (entry = readdir(dir));) {
		char path[1024];
		struct fixture f;
		if (strncmp(entry->d_name, "tiny-", 5))
			continue;
		snprintf(path, sizeof(path), MODEL_DIR "/fixture/%s", entry->d_name);
		fixture_load(&f, path, path);
		check_every_isa(&f, entry->d_name);
		fixture_done(&f);
		n++;
	}
	closedir(dir);
	assert_true(n > 0);
}

/* A folder with the model's weights under another config.json. */
static void expect_load_error(const char *config, const char *word)
{
	char dir[] = "/tmp/coppice-llama-XXXXXX", path[64], weights[64], target[PATH_MAX];
	struct llama model;
	struct fault fault = {""};
	assert_non_null(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/config.json", dir);
	snprintf(weights, sizeof(weights), "%s/model.safetensors", dir);
	assert_non_null(realpath(MODEL_DIR "/model.safetensors", target));
	assert_int_equal(symlink(target, weights), 0);
	FILE *file = fopen(path, "w");
	assert_non_null(file);
	fputs(config, file);
	assert_int_equal(fclose(file), 0);
	assert_true(llama_load(dir, &model, &fault) < 0);
	if (!strstr(fault.text, word))
		fail_msg("'%s' does not say '%s'", fault.text, word);
	unlink(path);
	unlink(weights);
	rmdir(dir);
}

static void tensors_that_do_not_fit_the_config_are_named(void **state)
{
	(void)state;
	const struct llama_config *c = &main_fixture.model.config;
	char text[512];
	const char *format = "{\"model_type\":\"llama\","
			     "\"vocab_size\":%u,\"num_hidden_layers\":%u,\"hidden_size\":%u,"
			     "\"intermediate_size\":%u,\"num_attention_heads\":%u,"
			     "\"num_key_value_heads\":%u,\"head_dim\":%u,"
			     "\"max_position_embeddings\":64,\"tie_word_embeddings\":true}";
	snprintf(text, sizeof(text), format, c->n_vocab, c->n_layers + 1, c->hidden,
		 c->intermediate, c->n_q_heads, c->n_kv_heads, c->head_dim);
	char word[64];
	snprintf(word, sizeof(word), "no tensor model.layers.%u.", c->n_layers);
	expect_load_error(text, word);
	snprintf(text, sizeof(text), format, c->n_vocab, c->n_layers, c->hidden,
		 c->intermediate + 16, c->n_q_heads, c->n_kv_heads, c->head_dim);
	expect_load_error(text, "model.layers.0.mlp.gate_proj.weight has the shape");
}

/* ---- the daemon ----------------------------------------------------------------------------- */

#ifdef COPPICED_PATH
struct service {
	char dir[32], socket[64];
	pid_t pid;
	struct daemon_attention attention;
};

static void service_start(struct service *s, enum coppice_dtype dtype)
{
	const struct llama *model = &main_fixture.model;
	const struct daemon_options options = {
		.address.socket_path = s->socket,
		.model = {.name = "llama_test",
			  .n_layers = model->config.n_layers,
			  .n_q_heads = model->config.n_q_heads,
			  .n_kv_heads = model->config.n_kv_heads,
			  .head_dim = model->config.head_dim,
			  .dtype = dtype,
			  .weights_hash = model->hash},
		.max_rows = CHUNK,
	};
	char option[96], backend[64];
	struct fault fault;
	strcpy(s->dir, "/tmp/coppice-llama-XXXXXX");
	assert_non_null(mkdtemp(s->dir));
	snprintf(s->socket, sizeof(s->socket), "%s/socket", s->dir);
	snprintf(option, sizeof(option), "--socket=%s", s->socket);
	snprintf(backend, sizeof(backend), "--backend=%s", test_backend());
	s->pid = fork();
	assert_true(s->pid >= 0);
	if (s->pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		execl(COPPICED_PATH, "coppiced", option, backend, "--pool=256M",
		      "--config=/dev/null", "--log-level=warning", NULL);
		_exit(127);
	}
	for (int i = 0; daemon_attention_open(&s->attention, &options, &fault) < 0; i++) {
		if (i == 1000 || waitpid(s->pid, NULL, WNOHANG))
			fail_msg("%s", fault.text);
		usleep(10000);
	}
}

static void service_stop(struct service *s)
{
	int status;
	daemon_attention_close(&s->attention);
	kill(s->pid, SIGTERM);
	assert_int_equal(waitpid(s->pid, &status, 0), s->pid);
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	unlink(s->socket);
	rmdir(s->dir);
}

/* On an empty daemon first; then, where the greedy text is wanted too, from what that left in the
 * store. */
static void through_the_daemon(const struct fixture *f, enum coppice_dtype dtype, double tolerance,
			       bool greedy)
{
	struct service service;
	struct runner run;
	service_start(&service, dtype);
	runner_daemon(&run, f, &service.attention);
	assert_int_equal(run.daemon_seq.match.cached, 0);
	const double error = logits_error(&run, f);
	print_message("daemon: largest error of a logit %.2e\n", error);
	assert_true(error <= tolerance);
	runner_done(&run);
	if (greedy) {
		runner_daemon(&run, f, &service.attention);
		assert_int_equal(run.daemon_seq.match.cached, f->n_prompt - 1);
		check_greedy(&run, f);
		runner_done(&run);
	}
	service_stop(&service);
}

/* A GPU's best is fp16, an eighth of bf16's rounding; half of the least lead of the greedy text is
 * more. */
static double precise_tolerance(void)
{
	return test_on_gpu() ? BF16_TOLERANCE / 4 : FP32_TOLERANCE;
}

static void the_daemons_attention_gives_pytorchs_logits_and_text(void **state)
{
	(void)state;
	through_the_daemon(&main_fixture, element_dtype(), precise_tolerance(), true);
}

static void the_daemons_attention_in_bf16_is_near_pytorchs(void **state)
{
	(void)state;
	through_the_daemon(&main_fixture, COPPICE_BF16, BF16_TOLERANCE, false);
}

#ifdef WITH_LONG_PROMPT
static void after_8000_tokens_logits_and_text_are_still_pytorchs(void **state)
{
	(void)state;
	struct fixture f;
	fixture_load(&f, MODEL_DIR, MODEL_DIR "/fixture/trained-long");
	through_the_daemon(&f, element_dtype(), precise_tolerance(), true);
	fixture_done(&f);
}
#endif
#endif

static int load_main_fixture(void **state)
{
	(void)state;
	fixture_load(&main_fixture, MODEL_DIR, MODEL_DIR "/fixture/trained");
	return 0;
}

static int free_main_fixture(void **state)
{
	(void)state;
	fixture_done(&main_fixture);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(logits_agree_with_pytorch),
		cmocka_unit_test(logits_agree_with_pytorch_when_kv_is_bf16),
		cmocka_unit_test(the_greedy_continuation_is_pytorchs),
		cmocka_unit_test(chunks_do_not_change_a_bit),
		cmocka_unit_test(company_does_not_change_a_bit),
		cmocka_unit_test(every_tiny_model_agrees_with_pytorch_on_every_instruction_set),
		cmocka_unit_test(tensors_that_do_not_fit_the_config_are_named),
#ifdef COPPICED_PATH
		cmocka_unit_test(the_daemons_attention_gives_pytorchs_logits_and_text),
		cmocka_unit_test(the_daemons_attention_in_bf16_is_near_pytorchs),
#ifdef WITH_LONG_PROMPT
		cmocka_unit_test(after_8000_tokens_logits_and_text_are_still_pytorchs),
#endif
#endif
	};
	return cmocka_run_group_tests(tests, load_main_fixture, free_main_fixture);
}
