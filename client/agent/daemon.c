/*
 * daemon.c - how an app connects to coppiced and keeps sequences there.
 *
 * A sequence is opened on its prompt, then others who compute some of it are waited for. A lane is
 * a queue of its own, so that an entry that finds it full waits for what is in it.
 */
#include "daemon.h"

#include <errno.h>

bool daemon_stopped(const struct daemon *self)
{
	return self->address.stop && *self->address.stop;
}

int daemon_fail(const struct daemon *self, int error, const char *what, struct fault *fault)
{
	return fault_set(fault, error, "%s: %s", what, coppice_explain(self->coppice));
}

int daemon_interrupted(struct fault *fault)
{
	return fault_set(fault, -EINTR, "interrupted");
}

int daemon_wait(struct daemon *self, uint64_t ticket, const char *what, struct fault *fault)
{
	for (;;) {
		int r = coppice_wait(self->lane, ticket, DAEMON_SLICE_NS);
		if (r == 0)
			return 0;
		if (r != -ETIMEDOUT)
			return daemon_fail(self, r, what, fault);
		if (daemon_stopped(self))
			return daemon_interrupted(fault);
	}
}

int daemon_open(struct daemon *ret, const struct daemon_address *address, struct fault *fault)
{
	struct daemon self = {.address = *address};
	int r = coppice_connect(&self.coppice, address->socket_path);
	if (r < 0)
		return daemon_fail(&self, r, "no daemon", fault);
	r = coppice_lane_new(self.coppice, &self.lane);
	if (r < 0) {
		r = daemon_fail(&self, r, "no lane", fault);
		daemon_close(&self);
		return r;
	}
	*ret = self;
	return 0;
}

void daemon_close(struct daemon *self)
{
	coppice_arena_free(self->arena);
	coppice_lane_free(self->lane);
	coppice_close(self->coppice);
	*self = (struct daemon){0};
}

/* ---- sequences ------------------------------------------------------------------------------ */

int daemon_seq_open(struct daemon *self, const uint32_t *ids, uint32_t n, struct daemon_seq *ret,
		    struct fault *fault)
{
	struct daemon_seq seq = {0};
	int r = coppice_seq_open(self->lane, self->model, ids, n, self->address.salt, &seq.handle,
				 &seq.match);
	if (r < 0)
		return daemon_fail(self, r, "the prompt was not opened", fault);
	*ret = seq;
	return 0;
}

int daemon_seq_wait(struct daemon *self, struct daemon_seq *seq, struct fault *fault)
{
	while (seq->match.pending && !seq->match.claimed) {
		int r = coppice_seq_wait(seq->handle, DAEMON_SLICE_NS, &seq->match);
		if (r < 0 && r != -ETIMEDOUT)
			return daemon_fail(self, r, "waiting for the prompt failed", fault);
		if (daemon_stopped(self))
			return daemon_interrupted(fault);
	}
	return 0;
}

/* Makes room in a full lane: waits for all that is in it. */
static int drain(struct daemon *self, struct fault *fault)
{
	int r = daemon_wait(self, self->last_ticket, "an earlier entry failed", fault);
	return r == -ECANCELED ? 0 : r;
}

int daemon_seq_extend(struct daemon *self, struct daemon_seq *seq, const uint32_t *ids, uint32_t n,
		      struct fault *fault)
{
	int r;
	while ((r = coppice_seq_extend(seq->handle, ids, n, &self->last_ticket)) == -EAGAIN) {
		r = drain(self, fault);
		if (r < 0)
			return r;
	}
	if (r < 0)
		return daemon_fail(self, r, "no room for the next tokens", fault);
	return 0;
}

void daemon_seq_close(struct daemon_seq *seq)
{
	coppice_seq_close(seq->handle);
	*seq = (struct daemon_seq){0};
}
