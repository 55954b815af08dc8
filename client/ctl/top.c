/*
 * top.c - a live view: rates since the look before, then the sessions.
 *
 * On a terminal the view is redrawn in place and q or ctrl-C ends it; else each look follows the
 * last. SIGINT and SIGTERM are read from a descriptor, so that the terminal is always put right
 * before the end.
 */
#include "top.h"

#include "json.h"
#include "text.h"
#include "verbs.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#define CLEAR_SCREEN "\033[H\033[2J"

struct top {
	struct ctl *ctl;
	int signal_fd; /* owned */
	bool redraws; /* standard output is a terminal */
	bool listens; /* standard input is: keys count */
	struct termios before;
	struct verbs_look last;
	uint64_t last_ns;
};

static uint64_t top_now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * UINT64_C(1000000000) + (uint64_t)t.tv_nsec;
}

static int top_begin(struct top *top, struct ctl *ctl)
{
	struct termios keys;
	sigset_t signals;

	*top = (struct top){.ctl = ctl};
	sigemptyset(&signals);
	sigaddset(&signals, SIGINT);
	sigaddset(&signals, SIGTERM);
	sigprocmask(SIG_BLOCK, &signals, NULL);
	top->signal_fd = signalfd(-1, &signals, SFD_CLOEXEC);
	if (top->signal_fd < 0)
		return call_fail(&ctl->call, -errno, NULL, "signalfd: %s", strerror(errno));
	top->redraws = isatty(STDOUT_FILENO) && !ctl->options.json;
	top->listens = top->redraws && tcgetattr(STDIN_FILENO, &top->before) == 0;
	if (top->listens) {
		keys = top->before;
		keys.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
		tcsetattr(STDIN_FILENO, TCSANOW, &keys);
	}
	return 0;
}

static void top_end(struct top *top)
{
	verbs_look_done(&top->last);
	if (top->listens)
		tcsetattr(STDIN_FILENO, TCSANOW, &top->before);
	if (top->signal_fd >= 0)
		close(top->signal_fd);
}

/* Sleeps for the interval. True: the user wants to end. */
static bool top_wait(struct top *top)
{
	struct pollfd fds[2] = {{.fd = top->signal_fd, .events = POLLIN},
				{.fd = top->listens ? STDIN_FILENO : -1, .events = POLLIN}};
	uint64_t until_ns = top_now_ns() + top->ctl->options.interval_ns;
	char key;

	for (;;) {
		uint64_t now_ns = top_now_ns();
		if (now_ns >= until_ns)
			return false;
		poll(fds, 2, (int)((until_ns - now_ns) / 1000000 + 1));
		if (fds[0].revents)
			return true;
		if (!fds[1].revents)
			continue;
		if (read(STDIN_FILENO, &key, 1) != 1)
			fds[1].fd = -1;
		else if (key == 'q' || key == 'Q')
			return true;
	}
}

static double per_s(uint64_t now, uint64_t before, double seconds)
{
	return seconds > 0 && now >= before ? (double)(now - before) / seconds : 0;
}

static void print_rates(const Coppice__StatusReply *now, const Coppice__StatusReply *then, double s)
{
	uint64_t jobs = now->decode_jobs - then->decode_jobs;
	uint64_t read = now->decode_kv_bytes_read - then->decode_kv_bytes_read;
	uint64_t alone = now->decode_kv_bytes_alone - then->decode_kv_bytes_alone;

	printf("coppiced %s, up %s, %s%s\n", now->version, text_duration(now->uptime_ns).s,
	       now->backend, now->draining ? ", draining" : "");
	printf("  entries/s %.0f   batches/s %.0f   tokens/s: %.0f matched, %.0f published   "
	       "busy %.0f %%\n",
	       per_s(now->entries, then->entries, s), per_s(now->batches, then->batches, s),
	       per_s(now->tokens_matched, then->tokens_matched, s),
	       per_s(now->tokens_published, then->tokens_published, s),
	       per_s(now->busy_ns, then->busy_ns, s) / 1e7);
	printf("  decode: %.2f sessions a batch, KV read %s/s",
	       jobs ? (double)(now->decode_sessions - then->decode_sessions) / (double)jobs : 0,
	       text_bytes((uint64_t)((double)read / s)).s);
	if (alone > 0)
		printf(", %.1f %% of what it would be alone", 100 * (double)read / (double)alone);
	printf("\n  KV: %s tokens in %s nodes, %s; pool %s of %s; %s pages evicted\n\n",
	       text_count(now->n_tokens).s, text_count(now->n_nodes).s,
	       text_bytes(now->page_bytes).s, text_bytes(now->pool_bytes_used).s,
	       text_bytes(now->pool_bytes).s, text_count(now->pages_evicted).s);
}

/* The busiest of all time first. */
static int by_entries(const void *a, const void *b)
{
	const Coppice__Session *x = *(Coppice__Session *const *)a;
	const Coppice__Session *y = *(Coppice__Session *const *)b;

	return (x->entries < y->entries) - (x->entries > y->entries);
}

static int print_json(const struct verbs_look *look)
{
	json_t *sessions = json_array();

	for (size_t i = 0; i < look->n_sessions; i++)
		json_array_append_new(sessions, json_message(&look->sessions[i]->base));
	return json_print(json_pack("{s:o, s:o}", "status",
				    json_message(&look->status->status->base), "sessions",
				    sessions));
}

/* Prints a look; the first one's rates are those since the daemon's start. */
static int top_print(struct top *top, const struct verbs_look *look, uint64_t now_ns)
{
	static const Coppice__StatusReply nothing = COPPICE__STATUS_REPLY__INIT;
	const Coppice__StatusReply *now = look->status->status;
	const Coppice__StatusReply *then = top->last.status ? top->last.status->status : &nothing;
	uint64_t ns = top->last.status ? now_ns - top->last_ns : now->uptime_ns;

	if (top->ctl->options.json)
		return print_json(look);
	qsort(look->sessions, look->n_sessions, sizeof(*look->sessions), by_entries);
	if (top->redraws)
		fputs(CLEAR_SCREEN, stdout);
	print_rates(now, then, (double)(ns + 1) / 1e9);
	verbs_print_sessions(look->sessions, look->n_sessions);
	if (!top->redraws)
		putchar('\n');
	return fflush(stdout) == EOF ? -EIO : 0;
}

static int top_look(struct top *top)
{
	struct verbs_look look = {0};
	uint64_t now_ns = top_now_ns();
	int r = verbs_look_status(top->ctl, &look);

	if (r == 0)
		r = verbs_look_sessions(top->ctl, &look);
	if (r == 0)
		r = top_print(top, &look, now_ns);
	verbs_look_done(&top->last);
	top->last = look;
	top->last_ns = now_ns;
	return r;
}

int top_run(struct ctl *ctl)
{
	uint64_t count = ctl->options.count;
	struct top top;
	int r = top_begin(&top, ctl);

	for (uint64_t i = 0; r == 0; i++) {
		r = top_look(&top);
		if (r < 0 || (count > 0 && i + 1 >= count) || top_wait(&top))
			break;
	}
	top_end(&top);
	return r;
}
