/*
 * weights.c - files handed to a loader of the daemon's, and the tensors that they turn out to have.
 *
 * The daemon never has a descriptor of ours: it gives us a socket to a process that has no rights,
 * and asks it alone. While weights are on their way the daemon is asked now and then.
 */
#include "weights.h"

#include "client/lib/base/clock.h"
#include "client/lib/base/pace.h"
#include "client/lib/base/sized.h"
#include "client/lib/connection/call.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define AGAIN_NS UINT64_C(2000000)

struct held_tensor {
	struct coppice_tensor about; /* its name owned */
	uint64_t offset; /* in what is mapped */
};

struct coppice_weights {
	struct coppice *c; /* borrowed */
	uint32_t id;
	bool ready;
	struct held_tensor *tensors; /* owned */
	uint32_t n_tensors, room;
};

uint32_t weights_id(const struct coppice_weights *weights)
{
	return weights->id;
}

struct coppice *weights_connection(const struct coppice_weights *weights)
{
	return weights->c;
}

/* ---- open ----------------------------------------------------------------------------------- */

static int send_fds(int socket, const int *fds, uint32_t n)
{
	static const char byte;
	_Alignas(struct cmsghdr) char room[CMSG_SPACE(COPPICE_WEIGHT_FILES_MAX * sizeof(int))] = {
		0};
	struct iovec iov = {(void *)&byte, 1};
	struct msghdr msg = {.msg_iov = &iov,
			     .msg_iovlen = 1,
			     .msg_control = room,
			     .msg_controllen = CMSG_SPACE(n * sizeof(int))};
	struct cmsghdr *c = CMSG_FIRSTHDR(&msg);

	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(n * sizeof(int));
	memcpy(CMSG_DATA(c), fds, n * sizeof(int));
	return sendmsg(socket, &msg, MSG_NOSIGNAL) == 1 ? 0 : -errno;
}

static int hand_over(struct coppice *c, struct answer *answer, const int *fds, uint32_t n)
{
	int socket = answer_take_fd(answer, 0), r = -EPROTO;

	if (socket >= 0) {
		r = send_fds(socket, fds, n);
		close(socket);
	}
	if (r < 0)
		return explain(c->key, r,
			       "coppice_weights_open: the descriptors cannot be sent: %s",
			       strerror(-r));
	return 0;
}

void weights_release(struct coppice *c, uint32_t id)
{
	Coppice__WeightsClose message = COPPICE__WEIGHTS_CLOSE__INIT;
	struct call call = call_of("coppice_weights_close");

	message.weights = id;
	call.request.weights_close = &message;
	call_release(c, &call);
}

static int weights_ask(struct coppice *c, const int *fds, uint32_t n_fds, uint32_t *ret_id)
{
	Coppice__WeightsOpen message = COPPICE__WEIGHTS_OPEN__INIT;
	struct call call = call_of("coppice_weights_open");
	CLEANUP_ANSWER struct answer answer = ANSWER_NONE;
	int r;

	call.request.weights_open = &message;
	r = call_daemon(c, &call, &answer);
	if (r < 0)
		return r;
	if (!answer.reply->weights)
		return call_bad_answer(c, call.what);
	r = hand_over(c, &answer, fds, n_fds);
	if (r < 0)
		weights_release(c, answer.reply->weights->weights);
	else
		*ret_id = answer.reply->weights->weights;
	return r;
}

/* Many processes that begin at once find that others' loaders look at the same files. */
static int ask_in_time(struct coppice *c, const int *fds, uint32_t n_fds, uint32_t *ret_id)
{
	const struct timespec pause = clock_timespec(AGAIN_NS);
	uint64_t deadline_ns = clock_now_ns() + COPPICE_CONNECT_NS;
	int r;

	while ((r = weights_ask(c, fds, n_fds, ret_id)) == -EAGAIN && clock_now_ns() < deadline_ns)
		nanosleep(&pause, NULL);
	return r;
}

int coppice_weights_open(struct coppice *c, const int *fds, uint32_t n_fds,
			 struct coppice_weights **ret)
{
	struct coppice_weights *weights;
	int r = connection_check(c);

	if (r < 0)
		return r;
	if (n_fds == 0 || n_fds > COPPICE_WEIGHT_FILES_MAX)
		return explain(c->key, -EINVAL,
			       "coppice_weights_open: weights are of 1 to %u files, not %u",
			       COPPICE_WEIGHT_FILES_MAX, n_fds);
	weights = calloc(1, sizeof(*weights));
	if (!weights)
		return explain(c->key, -ENOMEM, "coppice_weights_open: out of memory");
	weights->c = c;
	r = ask_in_time(c, fds, n_fds, &weights->id);
	if (r < 0) {
		free(weights);
		return r;
	}
	*ret = weights;
	return 0;
}

/* ---- wait ----------------------------------------------------------------------------------- */

static int add_tensor(struct coppice_weights *weights, const Coppice__Tensor *from)
{
	struct held_tensor *t = &weights->tensors[weights->n_tensors];

	t->about = (struct coppice_tensor){.name = strdup(from->name),
					   .dtype = (enum coppice_dtype)from->dtype,
					   .n_out = from->n_out,
					   .n_in = from->n_in};
	t->offset = from->offset;
	if (!t->about.name)
		return -ENOMEM;
	weights->n_tensors++;
	return 0;
}

/* As many as fit a message. */
static int ask_some(struct coppice_weights *weights)
{
	Coppice__WeightsTensors message = COPPICE__WEIGHTS_TENSORS__INIT;
	struct call call = call_of("coppice_weights_wait");
	CLEANUP_ANSWER struct answer answer = ANSWER_NONE;
	const Coppice__WeightsTensorsReply *tensors;
	int r;

	message.weights = weights->id;
	message.first = weights->n_tensors;
	call.request.weights_tensors = &message;
	r = call_daemon(weights->c, &call, &answer);
	if (r < 0)
		return r;
	tensors = answer.reply->weights_tensors;
	if (!tensors || tensors->n_tensor == 0 ||
	    tensors->n_tensor > weights->room - weights->n_tensors)
		return call_bad_answer(weights->c, call.what);
	for (size_t i = 0; i < tensors->n_tensor && r == 0; i++)
		r = add_tensor(weights, tensors->tensor[i]);
	return r < 0 ? explain(weights->c->key, r, "coppice_weights_wait: out of memory") : 0;
}

static int ask_tensors(struct coppice_weights *weights, uint32_t n)
{
	int r = 0;

	if (!weights->tensors) {
		weights->tensors = calloc(n + 1, sizeof(*weights->tensors));
		weights->room = n;
	}
	if (!weights->tensors)
		return explain(weights->c->key, -ENOMEM, "coppice_weights_wait: out of memory");
	while (weights->n_tensors < n && r == 0)
		r = ask_some(weights);
	weights->ready = r == 0;
	return r;
}

/* 0: they are there, and so are their tensors; -EAGAIN: not yet. */
static int look(struct coppice_weights *weights, struct coppice_progress *ret)
{
	Coppice__WeightsState message = COPPICE__WEIGHTS_STATE__INIT;
	struct call call = call_of("coppice_weights_wait");
	CLEANUP_ANSWER struct answer answer = ANSWER_NONE;
	const Coppice__WeightsStateReply *state;
	int r;

	message.weights = weights->id;
	call.request.weights_state = &message;
	r = call_daemon(weights->c, &call, &answer);
	if (r < 0)
		return r;
	state = answer.reply->weights_state;
	if (!state)
		return call_bad_answer(weights->c, call.what);
	*ret = (struct coppice_progress){.bytes = state->bytes_all,
					 .bytes_done = state->bytes_done};
	if (!state->ready)
		return -EAGAIN;
	return weights->ready ? 0 : ask_tensors(weights, state->n_tensors);
}

int coppice_weights_wait(struct coppice_weights *weights, uint64_t timeout_ns,
			 struct coppice_progress *ret)
{
	const struct sized_caller caller = {weights->c->key, "coppice_weights_wait"};
	struct pace pace = pace_begin(timeout_ns);
	struct coppice_progress progress = {0};
	int r, told;

	do {
		r = look(weights, &progress);
		told = ret ? sized_fill(caller, ret, &progress, sizeof(progress)) : 0;
	} while (told == 0 && r == -EAGAIN && pace_sleep(&pace));
	if (told < 0)
		return told;
	if (r == -EAGAIN)
		return explain(weights->c->key, -ETIMEDOUT,
			       "coppice_weights_wait: the weights are still being loaded");
	return r;
}

/* ---- tensors -------------------------------------------------------------------------------- */

uint32_t coppice_weights_count(const struct coppice_weights *weights)
{
	return weights->ready ? weights->n_tensors : 0;
}

static int explain_not_waited(const struct coppice_weights *weights, int r, const char *what)
{
	return explain(weights->c->key, r,
		       "%s: tensors are known once coppice_weights_wait has returned 0", what);
}

static int explain_number(const struct coppice_weights *weights, const char *what, uint32_t number)
{
	if (!weights->ready)
		return explain_not_waited(weights, -EINVAL, what);
	return explain(weights->c->key, -EINVAL, "%s: there is no tensor %u: the weights have %u",
		       what, number, coppice_weights_count(weights));
}

int coppice_weights_tensor(const struct coppice_weights *weights, uint32_t number,
			   struct coppice_tensor *ret)
{
	if (number >= coppice_weights_count(weights))
		return explain_number(weights, "coppice_weights_tensor", number);
	*ret = weights->tensors[number].about;
	return 0;
}

int coppice_weights_offset(const struct coppice_weights *weights, uint32_t number, uint64_t *ret)
{
	if (number >= coppice_weights_count(weights))
		return explain_number(weights, "coppice_weights_offset", number);
	*ret = weights->tensors[number].offset;
	return 0;
}

int coppice_weights_find(const struct coppice_weights *weights, const char *name,
			 uint32_t *ret_number)
{
	uint32_t low = 0, high = coppice_weights_count(weights);

	while (low < high) {
		uint32_t middle = low + (high - low) / 2;
		int order = strcmp(weights->tensors[middle].about.name, name);

		if (order == 0) {
			*ret_number = middle;
			return 0;
		}
		if (order < 0)
			low = middle + 1;
		else
			high = middle;
	}
	if (!weights->ready)
		return explain_not_waited(weights, -ENOENT, "coppice_weights_find");
	return explain(weights->c->key, -ENOENT, "the weights have no tensor %s", name);
}

void coppice_weights_close(struct coppice_weights *weights)
{
	if (!weights)
		return;
	if (connection_is_open(weights->c))
		weights_release(weights->c, weights->id);
	for (uint32_t i = 0; i < weights->n_tensors; i++)
		free((char *)weights->tensors[i].about.name);
	free(weights->tensors);
	free(weights);
}
