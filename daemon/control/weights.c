/*
 * weights.c - the verbs weights_open, weights_state, weights_tensors, weights_map, weights_close,
 * weights_list.
 *
 * All is answered at once, by the loop: who waits for weights asks again. A session knows weights
 * by a number of its own.
 */
#include "daemon/weights/weights.h"

#include "daemon/session/begin.h"
#include "daemon/session/reply.h"
#include "daemon/weights/lend.h"
#include "proto/cleanup.h"
#include "verbs.h"
#include "weights.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#define TENSORS_BYTES 60000u /* of an answer, by the names in it and what goes with them */
#define TENSOR_BYTES 44u
#define TENSORS_PAGE 512u
#define ROWS_PAGE 64u

static bool table_is_there(struct session *s, uint64_t id)
{
	if (s->home->weights)
		return true;
	reply_error(s, id, -EOPNOTSUPP, NULL,
		    "This daemon's backend (%s) holds no weights in this version.",
		    s->home->backend_name);
	return false;
}

struct weights *session_weights(struct session *s, uint64_t id, uint32_t number)
{
	if (number >= 1 && number <= s->home->config->max_weights && s->weights[number - 1].held)
		return weights_real(s->weights[number - 1].held);
	reply_error(s, id, -ENOENT, "weights", "There are no weights %u in this session.", number);
	return NULL;
}

/* ---- weights_open --------------------------------------------------------------------------- */

static uint32_t find_free(const struct session *s)
{
	uint32_t n = s->home->config->max_weights;

	for (uint32_t i = 0; i < n; i++)
		if (!s->weights[i].held)
			return i + 1;
	return 0;
}

/* A number for more weights; 0: an answer is on its way. */
static uint32_t find_number(struct session *s, uint64_t id)
{
	uint32_t number = find_free(s);

	if (!number)
		reply_error(s, id, -EUSERS, NULL,
			    "A session has at most %u weights open (max_weights): close some.",
			    s->home->config->max_weights);
	return number;
}

static void give_up(struct held_weights *weights)
{
	weights_unref(weights->held);
	*weights = (struct held_weights){0};
}

static void open_refuse(struct session *s, uint64_t id, int r)
{
	const struct config *config = s->home->config;

	if (r == -EAGAIN)
		reply_error(s, id, r, NULL,
			    "As many weights are being loaded as may be at a time, %u of a user "
			    "(max_domain_loads) and %u in all (max_loads), the last for who loads "
			    "none: ask again later.",
			    config->max_domain_loads, config->max_loads);
	else
		reply_error(s, id, r, NULL, "The weights cannot be loaded: %s.", strerror(-r));
}

static void open_begin(struct session *s, uint64_t id, const void *message)
{
	Coppice__Reply reply = COPPICE__REPLY__INIT;
	Coppice__WeightsReply weights = COPPICE__WEIGHTS_REPLY__INIT;
	CLEANUP_FD int fd = -1;
	uint32_t number;
	int r;

	(void)message;
	if (!table_is_there(s, id) || !request_may_carry(s, id))
		return;
	number = find_number(s, id);
	if (!number)
		return;
	r = weights_open(s->home->weights, s->peer.uid, &s->weights[number - 1].held, &fd);
	if (r < 0) {
		open_refuse(s, id, r);
		return;
	}
	weights.weights = number;
	reply.id = id;
	reply.weights = &weights;
	r = reply_send_fds(s, &reply, &fd, 1);
	if (r == 0)
		return;
	give_up(&s->weights[number - 1]);
	reply_unsent(s, id, r);
}

const struct verb verb_weights_open = {.begin = open_begin};

/* ---- weights_state -------------------------------------------------------------------------- */

static void state_begin(struct session *s, uint64_t id, const void *message)
{
	const Coppice__WeightsState *m = message;
	Coppice__Reply reply = COPPICE__REPLY__INIT;
	Coppice__WeightsStateReply state = COPPICE__WEIGHTS_STATE_REPLY__INIT;
	struct weights *weights = session_weights(s, id, m->weights);
	const struct weights *ready;

	if (!weights)
		return;
	ready = weights_ready(weights);
	if (weights_state(weights) == WEIGHTS_FAILED) {
		reply_error(s, id, weights->error, "weights", "%s", weights->why);
		return;
	}
	state.ready = ready != NULL;
	state.bytes_done = atomic_load(&weights->bytes_done);
	state.bytes_all = atomic_load(&weights->bytes_all);
	state.n_tensors = ready ? ready->content.n_tensors : 0;
	reply.id = id;
	reply.weights_state = &state;
	reply_send(s, &reply);
}

const struct verb verb_weights_state = {.begin = state_begin};

/* ---- weights_tensors ------------------------------------------------------------------------ */

static void tensors_send(struct session *s, uint64_t id, const struct weights_content *content,
			 uint32_t first)
{
	Coppice__Reply reply = COPPICE__REPLY__INIT;
	Coppice__WeightsTensorsReply answer = COPPICE__WEIGHTS_TENSORS_REPLY__INIT;
	Coppice__Tensor rows[TENSORS_PAGE], *pointers[TENSORS_PAGE];
	size_t bytes = 0, n = 0;

	for (uint32_t i = first; i < content->n_tensors && n < TENSORS_PAGE; i++, n++) {
		const struct program_tensor *t = &content->tensors[i];

		bytes += strlen(t->name) + TENSOR_BYTES;
		if (bytes > TENSORS_BYTES)
			break;
		coppice__tensor__init(&rows[n]);
		rows[n].name = (char *)t->name;
		rows[n].dtype = (uint32_t)t->dtype;
		rows[n].n_out = t->n_out;
		rows[n].n_in = t->n_in;
		rows[n].has_offset = true;
		rows[n].offset = t->offset;
		pointers[n] = &rows[n];
	}
	answer.n_tensor = n;
	answer.tensor = pointers;
	reply.id = id;
	reply.weights_tensors = &answer;
	reply_send(s, &reply);
}

static void tensors_begin(struct session *s, uint64_t id, const void *message)
{
	const Coppice__WeightsTensors *m = message;
	struct weights *weights = session_weights(s, id, m->weights), *ready;

	if (!weights)
		return;
	ready = weights_ready(weights);
	if (ready)
		tensors_send(s, id, &ready->content, m->first);
	else
		reply_error(s, id, -EAGAIN, "weights", "Weights %u are not loaded.", m->weights);
}

const struct verb verb_weights_tensors = {.begin = tensors_begin};

/* ---- weights_map ---------------------------------------------------------------------------- */

static void map_refuse(struct session *s, uint64_t id, int r)
{
	if (r == -EPERM)
		reply_error(
			s, id, r, NULL,
			"This daemon lends no weights: memory that a process keeps mapped is in no "
			"account. lend_weights = 1 allows it.");
	else if (r == -EAGAIN)
		reply_error(s, id, r, NULL, "The weights are being made ready: ask again.");
	else if (r == -EOPNOTSUPP)
		reply_error(s, id, r, NULL,
			    "This daemon's backend (%s) lends no weights in this version.",
			    s->home->backend_name);
	else if (r == -ENOMEM)
		reply_error(s, id, r, NULL,
			    "There is no memory to move the weights to where clients map them.");
	else
		reply_error(s, id, r, NULL, "The weights cannot be lent: %s.", strerror(-r));
}

/* Of the device the client has nothing open before it has this answer. */
static int map_send(struct session *s, uint64_t id, uint32_t number,
		    const struct backend_lent *lent)
{
	Coppice__Reply reply = COPPICE__REPLY__INIT;
	Coppice__WeightsMapReply map = COPPICE__WEIGHTS_MAP_REPLY__INIT;

	map.weights = number;
	map.bytes = lent->bytes;
	map.has_device = lent->on_device;
	if (lent->on_device)
		map.device = (ProtobufCBinaryData){sizeof(lent->device), (uint8_t *)lent->device};
	reply.id = id;
	reply.weights_map = &map;
	return reply_send_fds(s, &reply, &lent->fd, 1);
}

static void map_give(struct session *s, uint64_t id, struct weights *weights,
		     const struct backend_lent *lent)
{
	uint32_t number = find_number(s, id);
	int r;

	if (!number)
		return;
	s->weights[number - 1] = (struct held_weights){weights_ref(weights), lent->on_device};
	r = map_send(s, id, number, lent);
	if (r == 0)
		return;
	give_up(&s->weights[number - 1]);
	reply_unsent(s, id, r);
}

static void map_begin(struct session *s, uint64_t id, const void *message)
{
	const Coppice__WeightsMap *m = message;
	struct weights *weights = session_weights(s, id, m->weights);
	struct backend_lent lent;
	int r;

	if (!weights || !request_may_carry(s, id))
		return;
	weights = weights_ready(weights);
	if (!weights) {
		reply_error(s, id, -EINVAL, "weights", "Weights %u are not loaded.", m->weights);
		return;
	}
	r = s->home->config->lend_weights ? weights_lend(weights, &lent) : -EPERM;
	if (r < 0)
		map_refuse(s, id, r);
	else
		map_give(s, id, weights, &lent);
}

const struct verb verb_weights_map = {.begin = map_begin};

/* ---- weights_close -------------------------------------------------------------------------- */

static void close_begin(struct session *s, uint64_t id, const void *message)
{
	const Coppice__WeightsClose *m = message;
	Coppice__Reply reply = COPPICE__REPLY__INIT;

	if (!session_weights(s, id, m->weights))
		return;
	give_up(&s->weights[m->weights - 1]);
	reply.id = id;
	reply_send(s, &reply);
}

const struct verb verb_weights_close = {.begin = close_begin};

/* ---- weights_list --------------------------------------------------------------------------- */

static void row_set(Coppice__WeightsRow *to, const struct weights_row *from)
{
	coppice__weights_row__init(to);
	to->number = from->number;
	to->domain = from->domain;
	to->state = (uint32_t)from->state;
	to->n_users = from->n_refs;
	to->n_tensors = from->n_tensors;
	to->bytes = from->bytes;
	to->bytes_done = from->bytes_done;
	to->bytes_all = from->bytes_all;
}

/* A user's own alone; root and the daemon's own user see all. */
static void list_begin(struct session *s, uint64_t id, const void *message)
{
	const Coppice__WeightsList *m = message;
	Coppice__Reply reply = COPPICE__REPLY__INIT;
	Coppice__WeightsListReply list = COPPICE__WEIGHTS_LIST_REPLY__INIT;
	Coppice__WeightsRow rows[ROWS_PAGE], *pointers[ROWS_PAGE];
	struct weights_row found[ROWS_PAGE];
	uint32_t n;

	if (!table_is_there(s, id))
		return;
	n = weights_rows(s->home->weights, m->cursor, found, ROWS_PAGE);
	for (uint32_t i = 0; i < n; i++) {
		if (!s->privileged && found[i].domain != s->peer.uid)
			continue;
		row_set(&rows[list.n_weights], &found[i]);
		pointers[list.n_weights] = &rows[list.n_weights];
		list.n_weights++;
	}
	list.cursor = n == ROWS_PAGE ? found[n - 1].number : 0;
	list.weights = pointers;
	list.bytes_max = weights_table_config(s->home->weights)->memory.bytes;
	reply.id = id;
	reply.weights_list = &list;
	reply_send(s, &reply);
}

const struct verb verb_weights_list = {.begin = list_begin};
