/*
 * top.c - a live view: look, wait, look again, print what happened in between.
 *
 * On a terminal the view is redrawn in place, and keys are obeyed; else each look follows the last.
 * SIGINT and SIGTERM are read from a descriptor, so that the terminal is always put right before
 * the end.
 */
#include "top.h"

#include "top_view.h"
#include "proto/arith.h"
#include "proto/clock.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <termios.h>
#include <unistd.h>

#define CLEAR_SCREEN "\033[H\033[2J"
#define KEY_LINES 2 /* the line of keys, and the one on which the cursor rests */
#define FIRST_NS UINT64_C(250000000) /* the first rates are not waited for longer */
#define FASTEST_NS UINT64_C(62500000)
#define SLOWEST_NS UINT64_C(3600000000000)

struct top {
	struct ctl *ctl;
	int signal_fd; /* owned */
	bool redraws; /* standard output is a terminal */
	bool listens; /* standard input is: keys count */
	struct termios before;
	uint64_t interval_ns;
	struct top_look last; /* owned */
};

enum top_event { TOP_LOOK, TOP_END };

/* ---- the terminal --------------------------------------------------------------------------- */

static void take_keys(struct top *top)
{
	struct termios keys;

	top->listens = top->redraws && tcgetattr(STDIN_FILENO, &top->before) == 0;
	if (!top->listens)
		return;
	keys = top->before;
	keys.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
	tcsetattr(STDIN_FILENO, TCSANOW, &keys);
}

static int top_begin(struct top *top, struct ctl *ctl)
{
	sigset_t signals;

	*top = (struct top){.ctl = ctl, .interval_ns = ctl->options.interval_ns};
	sigemptyset(&signals);
	sigaddset(&signals, SIGINT);
	sigaddset(&signals, SIGTERM);
	sigprocmask(SIG_BLOCK, &signals, NULL);
	top->signal_fd = signalfd(-1, &signals, SFD_CLOEXEC);
	if (top->signal_fd < 0)
		return call_fail(&ctl->call, -errno, NULL, "signalfd: %s", strerror(errno));
	top->redraws = isatty(STDOUT_FILENO) && !ctl->options.json;
	take_keys(top);
	return 0;
}

static void top_end(struct top *top)
{
	top_look_done(&top->last);
	if (top->listens)
		tcsetattr(STDIN_FILENO, TCSANOW, &top->before);
	if (top->signal_fd >= 0)
		close(top->signal_fd);
}

/* Lines of the terminal that a view may fill; 0: any number. */
static size_t room_lines(const struct top *top)
{
	struct winsize size;

	if (!top->redraws || ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) < 0 ||
	    size.ws_row <= KEY_LINES)
		return 0;
	return size.ws_row - KEY_LINES;
}

/* ---- waiting -------------------------------------------------------------------------------- */

static void change_interval(struct top *top, bool faster)
{
	uint64_t ns = faster ? top->interval_ns / 2 : top->interval_ns * 2;

	if (ns >= FASTEST_NS && ns <= SLOWEST_NS)
		top->interval_ns = ns;
}

/* What a key asks for; false: nothing, go on waiting. */
static bool key_event(struct top *top, char key, enum top_event *ret)
{
	*ret = key == 'q' || key == 'Q' ? TOP_END : TOP_LOOK;
	if (key == '+' || key == '-')
		change_interval(top, key == '+');
	return *ret == TOP_END || key == '+' || key == '-' || key == ' ';
}

static bool read_key(struct top *top, enum top_event *ret)
{
	char key;

	if (read(STDIN_FILENO, &key, 1) == 1)
		return key_event(top, key, ret);
	top->listens = false;
	return false;
}

/* Until the next look is due, or somebody asks for it, or for the end. */
static enum top_event top_wait(struct top *top, uint64_t wait_ns)
{
	uint64_t until_ns = clock_now_ns() + wait_ns, now_ns;
	enum top_event event;

	while ((now_ns = clock_now_ns()) < until_ns) {
		struct pollfd fds[2] = {{.fd = top->signal_fd, .events = POLLIN},
					{.fd = top->listens ? STDIN_FILENO : -1, .events = POLLIN}};

		poll(fds, 2, (int)((until_ns - now_ns) / 1000000 + 1));
		if (fds[0].revents)
			return TOP_END;
		if (fds[1].revents && read_key(top, &event))
			return event;
	}
	return TOP_LOOK;
}

/* ---- the view ------------------------------------------------------------------------------- */

static void print_keys(const struct top *top)
{
	printf("q quit   space look now   + faster   - slower   (every %g s)\n",
	       (double)top->interval_ns / 1e9);
}

static int top_print(struct top *top, struct top_look *look)
{
	int r;

	if (top->ctl->options.json)
		return top_view_print_json(top->ctl, look);
	if (top->redraws)
		fputs(CLEAR_SCREEN, stdout);
	r = top_view_print(top->ctl, &top->last, look, room_lines(top));
	if (top->listens)
		print_keys(top);
	else
		putchar('\n');
	return r;
}

static int top_look(struct top *top)
{
	struct top_look look;
	int r = top_look_read(top->ctl, &look);

	if (r == 0)
		r = top_print(top, &look);
	fflush(stdout);
	top_look_done(&top->last);
	top->last = look;
	return r;
}

int top_run(struct ctl *ctl)
{
	uint64_t count = ctl->options.count, wait_ns;
	struct top top;
	int r = top_begin(&top, ctl);

	if (r == 0)
		r = top_look_read(ctl, &top.last);
	wait_ns = min_u64(top.interval_ns, FIRST_NS);
	for (uint64_t i = 0; r == 0 && top_wait(&top, wait_ns) == TOP_LOOK; i++) {
		r = top_look(&top);
		if (count > 0 && i + 1 >= count)
			break;
		wait_ns = top.interval_ns;
	}
	top_end(&top);
	return r;
}
