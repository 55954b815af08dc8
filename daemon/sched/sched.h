/*
 * sched.h - the scheduler: a thread that alone owns the store, the lanes' entries and the backend.
 *
 * The loop thread posts requests (struct sched_request) and gets each back, served, through
 * sched_reap. Everything that a session has (models, arenas, lanes, sequences) lives behind struct
 * sched_session, which only the scheduler touches between sched_session_add and the answer to
 * sched_session_end (verbs/sessions.h). Memory that the loop lends for an arena or a lane stays
 * mapped until the answer that it is gone, or that its session is. Device arenas are the
 * scheduler's; a session's end with keep_device ends everything but them, a second one ends them.
 *
 *      loop                     scheduler
 *      sched_post  ---------->  serve one, between batches
 *      sched_reap  <----------  (SCHED_LATER: later)      sched_reply_fd becomes readable
 */
#ifndef COPPICED_SCHED_H
#define COPPICED_SCHED_H

#include "proto/must_check.h"
#include "daemon/config/config.h"
#include "daemon/sched/core/request.h"

#include "kernels/backend.h"
#include "proto/abi.h"

struct ledger;
struct sched;

/* Starts the thread. config, ops, backend and board are borrowed until sched_free. 0 or -errno. */
MUST_CHECK int sched_new(const struct config *config, const struct backend_ops *ops,
			 struct backend *backend, struct abi_board *board, struct sched **ret);
/* From now on KV counts there, too, and goes where weights need the room. Before the first request;
 * borrowed until sched_free, behind which nobody asks it for KV. */
void sched_share_ledger(struct sched *s, struct ledger *ledger);
/* Stops the thread: every open entry completes with -ESHUTDOWN, every request comes back first by
 * sched_reap or is lost if not reaped. NULL is fine. Blocks. */
void sched_free(struct sched *s);

/* Any thread; does not block. */
void sched_post(struct sched *s, struct sched_request *request);
/* NULL: none; does not block. */
struct sched_request *sched_reap(struct sched *s);
/* An eventfd, readable when sched_reap has something; read it first. */
int sched_reply_fd(const struct sched *s);
/* Grows whenever the scheduler has gone round, and while a backend that it waits for computes; with
 * sched_probe what the watchdog looks at. Any thread. */
uint64_t sched_progress(const struct sched *s);
/* The backend has failed for good: the daemon should exit. Any thread. */
bool sched_failed(const struct sched *s);

#endif
